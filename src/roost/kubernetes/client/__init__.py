"""Talks to an API server: access, requests, watches, the lease."""
