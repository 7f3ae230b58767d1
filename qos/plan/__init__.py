"""The node half: which kernel file gets which value so that the floors of a node are kept."""
