"""Kubernetes: its objects decoded, its API server listed, watched and written."""
