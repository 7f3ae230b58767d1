"""The command line: the wiring of all programs."""
