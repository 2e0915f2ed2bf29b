"""Reads FX graphs and runs them on real or fake tensors."""
