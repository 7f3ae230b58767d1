"""What a round of the node's network is made from, and what is left where none is made any more."""
