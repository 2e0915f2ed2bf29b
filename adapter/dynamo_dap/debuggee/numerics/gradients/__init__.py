"""Computes and compares the gradients of a call."""
