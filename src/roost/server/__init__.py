"""The server: REST, live event streams, tokens and roles, over a running ``Cluster``.

It decides nothing: what may run where is the core's business, what is durable the cluster's. It
checks permissions, and keeps many readers cheap.
"""
