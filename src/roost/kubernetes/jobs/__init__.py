"""Roost Jobs on Kubernetes: objects of kind Job; the operator makes and binds their pods itself.

The ring, from the object to the pods and back:

1. ``controller``  A Job object came or changed. The ``JobController`` opens a ``JobWorkload`` for
   it and requeues it. All workloads share the controller as their ``JobsContext``.
2. ``workload``  ``reconcile`` reads the object (``request``: what is to run) and what an
   earlier leader left (``recovery``: the status, the pods of a run). It tells the core: Submitted,
   or Adopted with its allocation. A Job that cannot be has an ``Obstacle`` in its status instead.
3. The core decides, and the loop hands the action to ``workload.perform``, which hands it on.
4. ``run``  The ``JobRun`` makes the action real by generations of pods. Launch and Resume begin a
   generation; Stop and Suspend end it; Resize and Migrate change it while it runs if it can, else
   end it and begin the next.
5. ``generation``  One start of a run. ``blueprint`` says which objects it has (``containers``,
   ``pod_overrides``: what is in a pod). A task makes them, the pod with the plan first, and binds
   each pod to its seat (``pods``: requests that may be made twice).
6. ``elastic``  A generation with members that may change while it runs. Its pods call the
   operator, which tells them the members (the protocol is ``roost.elastic``). What is wanted is
   written into the status of the Job before anything is done.
7. Pods change. The loop tells the workload (``pod_changed``), it tells the run, that tells the
   generation, which judges: all are up, or it has to end (``pod_ends``: how pods ended).
8. ``run.news`` turns that into reports: Started, Resized, Suspended, or Ended with exits and the
   ends of the logs. The controller interprets them with what it knows of the job (``roost.jobs``),
   and ``reconcile`` hands the events to the core. Go to 3.
9. After each decision the controller marks the Jobs that it was about, and ``status_writer``
   patches their statuses; ``queue_status`` does the same for queues.

Calls go down the ring directly (controller, workload, run, generation). They come back up in two
ways only: by what ``reconcile`` returns, and by ``requeue`` from a task that is done.
"""
