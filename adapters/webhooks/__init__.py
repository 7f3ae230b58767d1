"""Admission webhooks of ours: where they are, their certificate, what the API server is told, the answers."""
