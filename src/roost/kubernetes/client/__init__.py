"""Talks to an API server: who we are there, requests, watches, the lease."""
