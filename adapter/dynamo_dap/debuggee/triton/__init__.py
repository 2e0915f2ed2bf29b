"""Observes Triton's interpreter, which runs kernels as Python without a GPU: what runs, where pointers point.

The only place that touches Triton's private names. Triton is an extra, and is never imported here: everything waits
until the program imports it. Packages below: torch_api, bytecode.
"""
