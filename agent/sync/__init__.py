"""Keeps what the agent knows of pods and rules in step with where they are written, and tells the hook."""
