"""Reads the structured trace logs that torch writes (``TORCH_TRACE``) into the same records as our own files.

Needs only ``msgspec``. Never imports torch: the log may come from another machine and another torch. A log is untrusted
data: nothing in it is executed, and control characters are replaced.
"""
