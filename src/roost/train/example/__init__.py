"""A small real training in NumPy that is elastic: ``python -m roost.train.example``.

trainer    the loop: steps, and what is agreed with each
group      the workers that train together now
exchange   sums over the workers, over plain TCP
learner    the network and its data
"""
