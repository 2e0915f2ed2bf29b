"""Makes fixes: edits as an engineer would make them, each for one kind of finding. It has no side effects.

An edit is offered only if it cannot change the program's results, and if the record says that it helps: the break goes
away, a graph stays whole, or the size is the one whose guard failed.
"""

from __future__ import annotations

from dynamo_dap.language_server.fixes import dynamic_sizes, graph_breaks
from dynamo_dap.language_server.fixes.edits import Fix, Situation, is_in_library, still_parses

_MAKERS = (graph_breaks.fixes, dynamic_sizes.fixes)


def fixes_of(situation: Situation) -> list[Fix]:
    """Return the possible fixes of a finding; none while the file has syntax errors, or in a library."""
    if situation.document.tree is None or is_in_library(situation.document.path):
        return []
    found = [fix for maker in _MAKERS for fix in maker(situation)]
    return [fix for fix in found if still_parses(fix)]
