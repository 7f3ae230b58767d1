"""Our eBPF programs: C sources, what was compiled from them, and a loader by bpf(2) alone
(docs/network.md).
"""
