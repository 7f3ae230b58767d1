"""The network of a node: its link, whose interface is whose, who may send and receive how much."""
