"""Triton's interpreter, in which kernels run as Python without a GPU: what runs there, and where its pointers point.

The only place that touches Triton's private names. Triton is an extra, and is never imported here: everything waits
until the program imports it. Packages below: torch_api, bytecode.
"""
