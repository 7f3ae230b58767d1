"""The webhook of elastic quotas: what is asked, what is answered, by what."""
