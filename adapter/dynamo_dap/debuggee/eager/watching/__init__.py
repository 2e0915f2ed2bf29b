"""Data breakpoints on attributes in ordinary Python. Remove the folder and its import to remove the feature."""
