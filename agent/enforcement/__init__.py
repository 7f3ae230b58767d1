"""Plans into kernel files, and what keeps them there: originals, drift, fights."""
