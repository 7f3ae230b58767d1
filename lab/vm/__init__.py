"""A throw-away virtual machine with a real cgroup v2 kernel, for tests/kernel (docs/kernel-vm.md)."""
