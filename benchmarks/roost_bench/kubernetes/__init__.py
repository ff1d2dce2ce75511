"""The operator beside kube-scheduler on a real API server."""
