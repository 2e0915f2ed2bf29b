"""Reads torch's caches: the entries of a code object, their guards, what a lookup found, and kernels on disk.

Runs on the thread whose call looks up an entry, or while the program is held.
"""
