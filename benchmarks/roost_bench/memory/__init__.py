"""``roost bench memory``: the memory that a training takes, predicted and measured.

models    networks of every common kind, in a few lines each
cases     what is trained: network, batch, precision, optimiser
trial     one case in a process of its own: predicted, then run on the GPU
probe     what operators of a GPU take beside their results
report    the figures beside their goals
command   ``roost bench memory``

Run as ``python -m roost_bench.memory`` it needs PyTorch and nothing of Roost's dependencies.
"""
