"""Watches in protobuf: the API server writes an event once for all who watch so, as kube-scheduler does."""
