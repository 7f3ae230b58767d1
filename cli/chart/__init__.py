"""The Helm chart in charts/j10ce-qos, made from manifests/ by `j10ce dev generate`."""
