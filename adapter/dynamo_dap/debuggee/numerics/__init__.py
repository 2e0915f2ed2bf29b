"""Finds wrong numbers: NaN and Inf, calls that differ when compiled, gradients and backward stops."""
