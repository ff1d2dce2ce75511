"""Kueue's objects, read as what Roost's queues are: promises in a tree, and who may use them.

    objects     ClusterQueue, Cohort, ResourceFlavor and LocalQueue without trusting their shape
    promises    a tree of them as queues of the core
    controller  whether Kueue itself is running, and decides
    source      follows the objects, and lets the core know
    admission   which of these queues a pod or Job is in, where it may go, what it is worth
    report      what was understood, and what was not, in sentences

Nothing is written to them: their statuses are Kueue's.
"""
