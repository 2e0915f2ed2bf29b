"""The requests that the agent serves, one module per family. Importing this package registers them."""

from dynamo_dap.debuggee.agent.handlers import breakpoints, compiles, execution, frames_and_values

__all__ = ["breakpoints", "compiles", "execution", "frames_and_values"]
