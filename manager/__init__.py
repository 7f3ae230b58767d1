"""The second program of the control plane: what is not on kube-scheduler's path (docs/manager.md)."""
