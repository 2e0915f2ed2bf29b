"""Waits until it is ended: breakpoints are set meanwhile."""

import threading

threading.Event().wait()
