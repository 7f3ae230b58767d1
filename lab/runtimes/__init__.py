"""Real container runtimes for tests and benchmarks: bundles, runc, crun, podman, containerd, scratch cgroups.

Standard library only: these modules also run inside the test VM, where nothing else is installed.
"""
