"""The custom resources of group j10ce.io: pydantic models, and the CRDs that are generated from them."""
