"""What jobs held of the cluster, when, and what that cost: meter, totals, prices, budgets.

All of it follows from events: the meter looks at a core after each batch, in every world alike, and
draws nothing from a clock. Who keeps its spells, and who shows them, is left to others.
"""
