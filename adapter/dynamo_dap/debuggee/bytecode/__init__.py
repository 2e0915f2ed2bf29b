"""Facts about source files and code objects, computed from them alone: lines, instructions, value stack depths.

Pure functions, without torch; any thread may call them.
"""
