"""Patches generated code at the user's request: instructions for later calls, the scope *Instruction*."""
