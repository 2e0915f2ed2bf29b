"""Parses the memory references that clients send: addresses of instructions, in hexadecimal."""

from __future__ import annotations


class BadAddress(Exception):
    """No address of an instruction; the text says why, for a person."""


def parsed_address(reference: str) -> int:
    """Return the address that a memory reference is.

    Raises:
        BadAddress: it is no number.
    """
    try:
        return int(reference, 0)
    except ValueError:
        raise BadAddress(f"{reference!r} is not the address of an instruction") from None
