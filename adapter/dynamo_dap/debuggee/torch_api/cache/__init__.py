"""Reads torch's caches: the entries of a code object, their guards, what a lookup found, and kernels on disk.

Runs on the thread that looks an entry up, or with the program held.
"""
