"""The DAP server: one process between the IDE and the debugged program. Never imports torch.

An asyncio loop on the main thread owns all state. Reader threads (one per connection, ``protocol.connection``) post
every message to the loop. The only other threads wait for child processes.

Packages, each importing only those above it::

    client       the IDE's end: capabilities, errors, messages to it, and the limit on connections without a token
    launching    starts a program: options, the child process, the handshake with the agent
    backends     sends each request to the agent or to debugpy; breakpoints, also after a restart
    programs     one life of the program, its child processes, and ranks that stop and step together
    sessions     one IDE connection, the requests that the server answers itself, and where sessions come from
"""
