"""What runs inside the debugged program.

Rooms, each depending only on those below it::

    bootstrap                        wires the rooms together and runs the user's program
    compile_time   run_time   eager  the two engines, and debugpy; they know nothing of each other
    agent                            the DAP end: pauses, breakpoints, steps, threads
    values                           any value as bounded DAP variables
    triton                           Triton's interpreter: launches, pointers, accesses
    code_analysis  torch_internals   facts about code objects; torch's private names, probed
"""
