"""Tests of what a paused trace shows, in one process and without a session."""
