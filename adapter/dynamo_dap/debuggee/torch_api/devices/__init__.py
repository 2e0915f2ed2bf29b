"""Reads what torch does for devices and ranks: CUDA graphs, buckets of DDP, sharded modules, process groups."""
