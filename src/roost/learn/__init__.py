"""Training of learnt policies: a surrogate world in slots, and recipes that learn in it.

``sorts`` has what jobs there are: drawn from models of speed, or read from DL2's table. ``slots``
is DL2's world: time in slots, all sizes decided anew in each, no restarts. ``rules`` are what a
learnt policy is compared with, ``deciders`` how a network decides there, with the very code of the
policy ``dl2``. ``evolve`` and ``imitate`` are the recipe ``es``; ``actor_critic`` is that of DL2's
authors, in PyTorch. Nothing here runs in a cluster.
"""
