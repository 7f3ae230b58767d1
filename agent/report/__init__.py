"""The node's report: when it is written, and how."""
