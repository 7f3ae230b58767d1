"""A node as most people run it, in the test VM: systemd, cgroup v2, kubelet's systemd driver."""
