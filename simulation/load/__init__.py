"""Rescheduling in virtual time: pods whose load changes and then does not, and a judge of when it ends."""
