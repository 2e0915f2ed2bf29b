"""Fixes: edits as an engineer would make them, each for one kind of finding. Pure.

An edit is offered only if it cannot change what the program computes, and if the record says that it helps: the break
goes away, a graph is no longer cut, or the size is the one whose guard failed.
"""

from __future__ import annotations

from dynamo_dap.language_server.fixes import dynamic_sizes, graph_breaks
from dynamo_dap.language_server.fixes.edits import Fix, Situation, is_in_library, still_parses

_MAKERS = (graph_breaks.fixes, dynamic_sizes.fixes)


def fixes_of(situation: Situation) -> list[Fix]:
    """Return what a person might do about a finding; nothing while the file has errors of syntax, or in a library."""
    if situation.document.tree is None or is_in_library(situation.document.path):
        return []
    found = [fix for maker in _MAKERS for fix in maker(situation)]
    return [fix for fix in found if still_parses(fix)]
