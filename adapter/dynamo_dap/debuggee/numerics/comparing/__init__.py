"""Compares compiled calls with eager: at a stop, and in a whole run without a debugger."""
