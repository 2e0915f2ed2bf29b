"""Exceptions that end a command early. Raised and caught on the prompt's thread."""

from __future__ import annotations


class UsageError(Exception):
    """A command or an argument makes no sense here; the text says what would."""


class Quit(Exception):
    """The user leaves."""
