"""``@torch.compiler.disable`` on a function that breaks the graph of its caller. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from dynamo_dap.language_server.document import Function, first_line
from dynamo_dap.language_server.findings import Kind
from dynamo_dap.language_server.fixes.edits import Fix, Situation, insert_lines

_DECORATOR = "@torch.compiler.disable"


def fixes(situation: Situation) -> Iterator[Fix]:
    """Yield a fix that keeps the innermost function out of the graph, when it is called by a compiled one."""
    finding, document = situation.finding, situation.document
    function = document.function_around(situation.line)
    if finding.kind is not Kind.GRAPH_BREAK or function is None or not _is_inlined(situation, function):
        return
    if any("compile" in document.source(one) for one in function.decorator_list):
        return
    line = first_line(function)
    indentation = document.indentation(line)
    yield Fix(
        f"Run {function.name} outside of the graph ({_DECORATOR})",
        (insert_lines(document, line, f"{indentation}{_DECORATOR}"),),
    )


def _is_inlined(situation: Situation, function: Function) -> bool:
    """Whether a compiled function broke inside ``function``: it is compiled by itself then, and breaks again."""
    stacks = [one.stack for one in situation.others if len(one.stack) > 1]
    inside = range(first_line(function), (function.end_lineno or function.lineno) + 1)
    return any(situation.document.line_of(stack[-1].place) in inside for stack in stacks)
