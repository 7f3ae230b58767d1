"""The cluster half: Kubernetes objects as small records, and how policies become demands."""
