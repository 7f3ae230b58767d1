"""The seconds in which a pod wanted its floor and received less, and what they leave of a policy's budget."""
