"""A cluster of Kubernetes behind the REST API of the server.

What ``roost --context`` talks to: the same routes, words and views, answered from the API server of
a cluster and written to it. It decides nothing; that is the operator's business.
"""
