"""Stages of a compile below Dynamo: lowering stops, explored stages, kernels, costs."""
