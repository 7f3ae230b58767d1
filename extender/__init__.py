"""The HTTP service that kube-scheduler calls, and the loops that only it can run: it knows the holds."""
