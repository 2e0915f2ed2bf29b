"""Decides who may connect, what is asked first, and which code is the debugger's own."""
