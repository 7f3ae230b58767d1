"""A real node beside a lab cluster: kubelet, containerd, NRI, runc and CNI in namespaces of their own."""
