"""The DAP end inside the debugged program: threads, pauses, breakpoints, steps, and the requests about them.

The agent knows nothing of torch. Engines (compile-time, run-time) hook into what executes, ask the agent whether to
stop, hand it the frames to show, and block in ``Agent.hold`` until the user goes on.
"""
