"""Reads Dynamo's VariableTrackers into a few forms, which the packages above show and compute with.

``TracedFrame.form_of`` is the entry point. Runs on the tracing thread.
"""
