"""Runs a program for a command: recorded, profiled, bisected or minified."""
