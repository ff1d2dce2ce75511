"""Elastic training with PyTorch: what ``train.elastic`` is made of. Needs ``torch``.

    loop         ``Elastic``: what a script holds; batches out, losses in
    crew         this worker among the others, and what they do at a step boundary
    control      the small round by which they agree on it
    meeting      forms the next group while training goes on; ``groups``: what a group is
    state        all that a step changes, as one value; ``checkpoints``: on disk, ``offload``: aside
    sampler      which samples a step trains on; ``feeding``: from their numbers to a batch
    gradients    averaged in a fixed order; ``statistics``: how noisy they are
    buffers      running means and the like follow worker 0
    memory       the peak of a step, told before it
    reporting    what Roost is told

``sampler`` and ``statistics`` need the standard library alone.
"""
