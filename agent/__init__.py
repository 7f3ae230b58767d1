"""The agent: keeps every floor on its node, repairs what drifts, measures what was delivered."""
