"""The one expected error of the hook's installation."""

from __future__ import annotations


class InstallationError(Exception):
    """Something on this node prevents it; the message names the file, what is wrong, and what to do."""
