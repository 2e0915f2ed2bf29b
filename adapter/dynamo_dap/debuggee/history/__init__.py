"""Lets the user step back in a trace and change it: snapshots, time travel, what-if."""
