"""Holds one session for each IDE connection, and answers its requests."""
