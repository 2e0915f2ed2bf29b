"""Tests of the commands that need no program of the user's."""
