"""Stops a call for its numbers: NaN, Inf, conditions on values, and lines of a backward pass."""
