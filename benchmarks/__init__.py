"""What the extender, the hook and the agent cost; bounds are ratios to work of the same run."""
