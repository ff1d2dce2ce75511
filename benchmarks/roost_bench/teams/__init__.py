"""Two teams, one pool of nodes that grows from nothing: an hour of the real operator.

virtual_time  an event loop that does not wait
cluster       an API server, kubelets and the ends of jobs, in memory
autoscaler    a pool of nodes that grows for placeholders and shrinks when nodes are empty
script        who submits what, and which node fails
oracle        what was promised, checked from the objects alone
hour          all of it together, and what is told of it
command       ``roost bench teams``
"""
