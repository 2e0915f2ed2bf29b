"""What is known how to fix: edits as a person would make them, each for one kind of finding. Pure."""
