"""The only place that opens, reads and writes kernel files, and the small files that tell the hook."""
