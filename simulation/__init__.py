"""The control plane in virtual time: a seed drives its players around the real ledger, binder and ingest."""
