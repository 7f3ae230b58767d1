"""The in-memory account of every node: allocatable, claims, holds. Pure and deterministic; numpy."""
