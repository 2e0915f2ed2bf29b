"""Starting a program under the debugger: options, the child process or the terminal's, the handshake with the agent."""
