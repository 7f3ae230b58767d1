"""Scenarios: what shall happen in a cluster, in a file; run for real, with expectations that are checked."""
