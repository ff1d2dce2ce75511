"""The demo: a real server on this machine, training jobs, and what the simulator predicted.

show     the demo from its beginning to its end
jobs     the training jobs, measured, predicted and run
server   a server in a folder that is thrown away
board    the table of jobs while they run
"""
