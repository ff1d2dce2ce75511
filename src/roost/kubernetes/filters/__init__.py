"""Rules about nodes that selectors and amounts cannot say: other pods, volumes, claims of devices.

The core plans with pools of nodes and with books (``objects.constraints``, ``core.extras``). What
depends on the rest of the cluster, and changes with every pod that is placed, is for a
``NodeFilter``: it says which nodes a pod must not go to now, keeps in mind what was decided, and
does what has to be done before the pod is bound.
"""
