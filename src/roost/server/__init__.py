"""The server: REST, live event streams, tokens and roles, over a running ``Cluster``.

It decides nothing: what may run where is the core's business, what is durable the cluster's. It
answers who may see and do what, and keeps many readers cheap.
"""
