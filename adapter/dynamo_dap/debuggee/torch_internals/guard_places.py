"""Which line of the user's asked for each guard of the compiles so far, for when one fails: torch does not always say.

Filled when the guards of a compile are complete, by whoever records them; bounded. Compiling threads, under Dynamo's
compile lock.
"""

from __future__ import annotations

from collections import OrderedDict
from types import CodeType

from dynamo_dap.debuggee.torch_internals.variable_trackers import Place

_MAXIMUM_COMPILES = 2000

_Key = tuple[str, int, str, str]
_places: OrderedDict[_Key, dict[str, Place]] = OrderedDict()


def _key(code: CodeType, compile_id: str) -> _Key:
    return code.co_filename, code.co_firstlineno, code.co_name, compile_id


def remember_places(code: CodeType, compile_id: str, places: dict[str, Place]) -> None:
    """Note the places of a compile's guards, by what they are about: ``self.weight``."""
    _places[_key(code, compile_id)] = places
    if len(_places) > _MAXIMUM_COMPILES:
        _places.popitem(last=False)


def remembered_place(code: CodeType, compile_id: str, source: str) -> Place | None:
    """Return the user's line that asked for a guard about ``source``; None when it is not known."""
    return _places.get(_key(code, compile_id), {}).get(source)
