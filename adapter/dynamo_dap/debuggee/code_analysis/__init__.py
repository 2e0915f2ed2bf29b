"""Facts about source files and code objects, computed from them alone: lines, instructions, depths of the value stack.

Pure functions, without torch; any thread may call them.
"""
