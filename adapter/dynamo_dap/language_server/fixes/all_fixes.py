"""Every fix there is for a finding. Pure."""

from __future__ import annotations

from dynamo_dap.language_server.fixes import checks, disable, dynamic_sizes, moving, settings
from dynamo_dap.language_server.fixes.edits import Fix, Situation

_MAKERS = (settings.fixes, checks.fixes, dynamic_sizes.fixes, disable.fixes, moving.fixes)


def fixes_of(situation: Situation) -> list[Fix]:
    """Return what a person might do about a finding; empty while the file has errors of syntax."""
    if situation.document.tree is None:
        return []
    return [fix for maker in _MAKERS for fix in maker(situation)]
