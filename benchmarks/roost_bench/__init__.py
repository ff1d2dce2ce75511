"""Benchmarks of Roost: ``roost bench``. They run from a checkout and are in no wheel of Roost.

command       the group ``roost bench``, with ``sim`` and ``decide``
simulator     what a simulation costs
decisions     what a single decision costs
sia, gavel, optimus   policies beside their published figures
sensitivity   how much those figures depend on their conditions
live          a real server on this machine
gpu           shares of a real GPU
memory        the memory that a training takes, predicted and measured
rhythm        periods found in what a job uses
kubernetes    the operator beside kube-scheduler
teams         an hour of two teams in virtual time, every promise checked
"""
