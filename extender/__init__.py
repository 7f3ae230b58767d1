"""The HTTP service that kube-scheduler calls, and the reconcilers that only it can run: it knows the holds."""
