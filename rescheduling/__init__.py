"""Load-aware rescheduling: which pod leaves a hot node, where it goes, and when that ends. Pure."""
