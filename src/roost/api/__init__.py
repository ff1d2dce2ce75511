"""The schema on the wire: every view that the REST API, its streams and objects of Kubernetes show.

    jobs, events, nodes, queues, snapshots, profiles, accounts    the views, each spelled once
    schema                                                        views to JSON and back

A view is a frozen dataclass. Servers encode it, the OpenAPI description is made from it, the client
decodes it. Times are seconds since the epoch; ``None``: not yet, or not known. Nothing here needs
the rest of Roost: the client loads it.
"""
