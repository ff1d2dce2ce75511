"""What sharing a GPU really gives, measured on this machine: ``roost bench gpu``.

Runs with the standard library and PyTorch alone, so that it can be taken to a machine with a GPU
and nothing else. ``python -m roost.engines.local.gpu.measure --json FILE``, or the same with the
folder of ``gpu`` as a program. Each measure runs in a process of its own with a time limit; what
it starts ends with it.

    __main__   one measure after the other, and the file of figures
    figures    a value, its goal, and whether it is met
    programs   the jobs that are measured, as source text
    victims    starting such jobs, telling them to go and reading how far they are
    by_turns   lock and unlock, slices of time, what idle neighbours leave
    side_by_side   shares by CUDA MPS, and what packing gives
    room       memory limits, suspend and resume, a job that leaves the GPU by itself
"""
