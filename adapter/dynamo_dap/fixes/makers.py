"""Makes fixes for findings: edits as an engineer would write them. The functions have no side effects.

An edit is offered only if it cannot change the program's results, and if the record shows that it helps: it removes a
break, keeps a graph whole, or makes a size dynamic after its guard failed. Edits that assume something about the data
are offered only after a trial.
"""

from __future__ import annotations

from dynamo_dap.fixes import dynamic_sizes, graph_breaks
from dynamo_dap.fixes.edits import Fix, Situation, is_in_library, still_parses

_MAKERS = (graph_breaks.fixes, dynamic_sizes.fixes)


def fixes_of(situation: Situation) -> list[Fix]:
    """Return the possible fixes of a finding; none while the file has syntax errors, or in a library."""
    if situation.document.tree is None or is_in_library(situation.document.path):
        return []
    found = [fix for maker in _MAKERS for fix in maker(situation)]
    return [fix for fix in found if still_parses(fix)]
