"""The network half: which queueing disciplines and classes keep the floors of a node's traffic."""
