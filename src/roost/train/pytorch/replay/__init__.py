"""Training steps replayed without computing them, to know the memory that they will take.

allocator  what PyTorch's allocator makes of births and deaths of tensors
recorder   sees those births and deaths, on fake tensors or on real ones
kernels    what operators do on a GPU that they do not do elsewhere
losses     a loss that stands in for the script's own, which cannot be seen before it is computed
steps      two whole steps of a training: forward, backward, optimiser
"""
