"""kube-scheduler, played: what of its behaviour an extender meets. Source: kubernetes 1.36, pkg/scheduler."""
