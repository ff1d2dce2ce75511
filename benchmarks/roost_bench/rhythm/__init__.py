"""``roost bench rhythm``: what repeats itself, and how often, found in what a job uses.

signals    what trainings look like from outside, and what is none
benchmark  how often the period is found, and how often one where there is none
command    ``roost bench rhythm``
"""
