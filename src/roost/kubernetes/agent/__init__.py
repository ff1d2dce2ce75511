"""The node agent, ``roost agent``: one on each node with GPUs.

It announces GPUs and shares of them to the kubelet, gives containers the devices that the scheduler
decided, and holds shares with the code of the local engine. It decides nothing.

    messages     what is said on the kubelet's sockets, in protobuf
    kubelet      the kubelet as the agent calls it: registration, and who has which devices
    plugin       the device plug-in of one resource, as the kubelet calls the agent
    devices      the GPUs of the node, and the names under which they are announced
    allocation   which pod an allocation is for, and which GPUs it is to have
    allocator    the answers to the kubelet: what a container is told of its devices
    containers   the processes of a pod on the node
    tenants      pods become tenants of the sharing daemon; suspending and resuming them
    use          how busy pods keep their GPUs
    health       GPUs that fail: Xid, ECC, off the bus
    obstacles    why shares cannot be held
    report       what is told of the node: conditions, a taint, a label
    metrics      health and figures over HTTP
    agent        all of it together
"""
