"""Reads and hooks what works on a graph below Dynamo: AOTAutograd, Inductor's passes, its lowering and its kernels."""
