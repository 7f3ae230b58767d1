"""What pods and the node use and wait for, each second, from cgroups of v1 and v2 and from /proc.

Only agent/monitor/metrics.py needs prometheus_client: the rest runs in the test VM.
"""
