"""Sizes of jobs with parameter servers: how many servers, and how many workers.

``outlook`` estimates how fast a job would be, ``probes`` measures where no estimate exists,
``gains`` gives out workers and servers one by one to the largest gain, ``slots`` makes the sizes
real, and ``sizing`` combines them for the policy ``roost``.
"""
