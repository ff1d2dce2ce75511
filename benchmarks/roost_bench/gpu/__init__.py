"""What sharing a GPU really gives, measured on this machine: ``roost bench gpu``.

Runs with the standard library and PyTorch alone, so that it can be taken to a machine with a GPU
and a checkout, and nothing else: ``python benchmarks/roost_bench/gpu --json FILE``. Each measure
runs in a process of its own with a time limit; what it starts ends with it.

    command    ``roost bench gpu``: runs the program and shows its figures
    program    one measure after the other, and the file of figures
    figures    a value, its goal, and whether it is met
    programs   the jobs that are measured, as source text
    workers    starting such jobs, telling them to go and reading how far they are
    turns      lock and unlock, slices of time, what idle neighbours leave
    spatial    shares by CUDA MPS, and what packing gives
    memory     memory limits, suspend and resume, a job that leaves the GPU by itself
    kinds      ten kinds of programs off the GPU and back, and what they compute
    ipc        two processes that share GPU memory
    leftovers  a thousand random starts, suspensions and kills
"""
