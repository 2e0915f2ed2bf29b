"""Reads the files that torch saves of compiled programs, without running any of their code."""
