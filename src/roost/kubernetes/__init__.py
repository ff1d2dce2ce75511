"""The edge to Kubernetes: talking to an API server and understanding its objects.

It decides nothing and remembers nothing that the server does not: ``api`` asks and tells,
``mirror`` keeps what is there, ``lease`` elects the leader. What Roost makes of it is the
operator's (``roost.kubernetes.operator``).
"""
