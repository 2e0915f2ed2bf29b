"""Finds races between programs of a Triton kernel that the interpreter runs: the filter ``race``."""
