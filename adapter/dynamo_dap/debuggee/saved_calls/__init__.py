"""Saves a call of a compiled function to a folder, and repeats it: ``record-call`` and ``replay``."""
