"""Dynamo's VariableTrackers, read into a few forms that the packages above can show and compute with.

``TracedFrame.form_of`` is the entry point. Runs on the tracing thread.
"""
