"""The driver for Kubernetes: the API server is the truth, the core decides, requests make it real.

``roost operator`` mirrors the objects of a cluster, folds them into a core when it becomes the
leader, and from then on turns what changes there into events and what the core wants into requests.
"""
