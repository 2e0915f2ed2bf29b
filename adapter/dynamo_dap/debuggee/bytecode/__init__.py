"""Computes facts about source files and code objects: lines, instructions, value stack depths.

Pure functions, without torch; any thread may call them.
"""
