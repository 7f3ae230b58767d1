"""Elastic quotas: what teams may use, what they lend each other, and who owes what to whom. Pure."""
