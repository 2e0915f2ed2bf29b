"""Serves DAP inside the debugged program: threads, pauses, breakpoints, steps, and requests about them.

The agent leaves torch to its engines (compile-time, run-time). They hook into the program, and ask the agent whether to
stop. To stop, they pass the frames to show, and block in ``Agent.hold`` until the user resumes the thread.

Each module depends only on those below it::

    serving                                  finds the handler and the thread for each request
    handlers/                                one module per family of requests
    requests                                 the table of handlers
    agent                                    the session in this process: the ``Host`` of the engines
    references  threads  pause               numbers for objects; held threads, and requests served on them
    engine                                   interfaces of agent, engines, debugpy and the process
    breakpoints  binding  conditions         where to stop
    frames  stepping  interruption  tracing  frames to show, steps, interrupting a thread, trace functions
"""
