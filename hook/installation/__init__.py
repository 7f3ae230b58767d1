"""Installing the hook on a node, looking after it, trying it, and taking it away. Not run by the runtime."""
