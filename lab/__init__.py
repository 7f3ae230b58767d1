"""A throw-away control plane on this machine, scenarios that run on it, and an independent checker."""
