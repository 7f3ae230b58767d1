"""NRI: the container runtime asks before it creates, and tells what it starts, changes and ends."""
