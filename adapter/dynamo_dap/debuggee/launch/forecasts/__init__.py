"""Forecasts what compiles next, for ``dynamo-dap forecast``."""
