"""DL2 in its own world: the learnt policy beside the rules, in slots."""
