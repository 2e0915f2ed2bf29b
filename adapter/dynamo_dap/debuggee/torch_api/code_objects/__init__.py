"""Reads the code objects that Dynamo generates: the functions they come from, their names, and their memory."""
