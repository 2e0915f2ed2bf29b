"""Settings of torch that its hints name: a line below the imports. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dynamo_dap.language_server.document import Document
from dynamo_dap.language_server.fixes.edits import Fix, Situation, insert_lines

_SETTING = re.compile(r"torch\._dynamo\.config\.\w+ = True")
_LOGGING = "torch._dynamo.config.reorderable_logging_functions"
_BUILTIN = re.compile(r"builtin operator `(?P<name>print)`")


def fixes(situation: Situation) -> Iterator[Fix]:
    """Yield a fix for each setting that the hints of a graph break name."""
    found = situation.finding.graph_break
    line = _below_imports(situation.document)
    if found is None or line is None:
        return
    hints = "\n".join(found.hints)
    for setting in dict.fromkeys(_SETTING.findall(hints)):
        yield Fix(f"Set {setting}", (insert_lines(situation.document, line, setting),))
    function = _BUILTIN.search(found.explanation or "")
    if _LOGGING in hints and function is not None:
        statement = f"{_LOGGING}.add({function['name']})"
        title = f"Let Dynamo run {function['name']} after the graph (reorderable_logging_functions)"
        yield Fix(title, (insert_lines(situation.document, line, statement),))


def _below_imports(document: Document) -> int | None:
    """Return the line below the imports that the file begins with, if torch is imported there."""
    last = None
    has_torch = False
    for node in document.tree.body if document.tree else ():
        if isinstance(node, ast.Import | ast.ImportFrom):
            last = node.end_lineno
            has_torch |= isinstance(node, ast.Import) and any(
                one.name.split(".")[0] == "torch" and (one.asname is None) for one in node.names
            )
        elif last is not None:
            break
    return last + 1 if last is not None and has_torch else None
