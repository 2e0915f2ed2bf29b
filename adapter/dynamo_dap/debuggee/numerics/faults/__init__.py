"""Finds which stage and which operation make a compiled result wrong."""
