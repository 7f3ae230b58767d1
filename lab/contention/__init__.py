"""Contention made on purpose, on cgroup v2: cgroups with rivals at full load, and what each of them got.

Standard library only: this runs inside the test VM.
"""
