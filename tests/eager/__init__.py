"""Tests of sessions with debugpy inside."""
