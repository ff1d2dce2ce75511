"""The membership protocol of jobs that change their size while they run.

Any worker of such a job is a *member* with an id of its own. A *version* of the members says which
of them train together, in the order of their ranks, and where the first one is met. The protocol
knows no clock, no process and no pod: its hosts do. They are the shim of the local engine
(processes), the operator on Kubernetes (pods) and ``roost.train`` (the training itself).

    protocol  the words that cross: what workers say, and what is believed of it
    members   the versions, and what the members said about them
    change    one ordered change, step by step
    turnover  changes by order and by loss, one after the other
    host      what a host has to offer (types alone)

It needs the standard library alone, and of that as little as possible: a shim starts in
milliseconds.
"""
