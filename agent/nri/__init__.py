"""NRI: the container runtime asks before it creates a container, and reports what it starts, changes and
ends.
"""
