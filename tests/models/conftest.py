"""Leaves the tests of this folder out where transformers is missing: ``make test-models`` runs them."""

from __future__ import annotations

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("transformers") else ["test_*.py"]
