"""The DAP server: one process between the IDE and the debugged program. Never imports torch.

An asyncio loop on the main thread owns all state. Reader threads (one per connection, ``protocol.connection``) post
every message to the loop. The only other threads wait for child processes.

Modules, each depending only on those above it::

    errors, capabilities, ids                  facts
    loop_connection, client, backend           the ends of connections, as the loop sees them
    routing, breakpoints, backend_events       the backend of a request; breakpoints, also after a restart; events
    launching/                                 options, the child process, the handshake with the agent
    rank_meeting, rank_member                  ranks of a distributed job that stop and step together
    child_sessions, connecting_programs        further sessions: of child processes; of ranks that connect
    debugpy_side, debuggee, session            one life of the program; one IDE connection
    handling, handlers                         the table of handlers; the requests that the server answers itself
    transports                                 where sessions come from
"""
