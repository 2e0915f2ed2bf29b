"""The project's own DAP test client: a real server process, an ordered timeline, every message checked.

``Session`` is what tests use; it builds on ``dynamo_dap.terminal.client``, the client that the terminal debugger uses.
"""

from tests.client.fixtures import FIXTURES, Fixture
from tests.client.session import Frame, Session, Stop
from tests.client.timeline import ExpectationError, Timeline

__all__ = ["FIXTURES", "ExpectationError", "Fixture", "Frame", "Session", "Stop", "Timeline"]
