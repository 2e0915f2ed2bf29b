"""Observes Triton's interpreter, which runs kernels as Python without a GPU: what runs, where pointers point.

The only package that uses Triton's private names. Triton is an extra dependency: all modules wait until the program
imports it. Packages below: torch_api, bytecode.
"""
