"""Talks to the IDE: capabilities, errors, and messages to it."""
