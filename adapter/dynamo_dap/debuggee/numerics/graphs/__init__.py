"""Runs Dynamo's graphs again: exactly, changed, and with each result kept."""
