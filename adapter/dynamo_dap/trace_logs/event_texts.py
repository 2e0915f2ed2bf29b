"""Parses the texts in torch's log: guards, graph breaks, reasons of recompiles. It has no side effects."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from dynamo_dap.protocol.texts import folded_check
from dynamo_dap.records.model import GraphBreak, Guard, GuardFailure, Place, StackLine
from dynamo_dap.trace_logs.graph_texts import SourceText

MAXIMUM_GUARDS = 2000
_LONGEST = 300
_MESSAGE = 4000
_GUARD = re.compile(r"[| ]*\+- (?P<type>[A-Z][A-Z0-9_]+): (?P<text>.*)$")
_COMMENT = re.compile(r"\s+# (?P<comment>.*)$")
_PLACE = re.compile(r"(?:(?P<code>.*?)\s*# )?(?P<path>[^\s:,(#]+\.py):(?P<line>\d+) in (?P<function>\S+)")
_SOURCE = re.compile(r"[LG]\[.+?\](?:[\w.\[\]'\"()]*)")
_FRAME = re.compile(
    r'^ +File "(?P<path>[^"\n]+)", line (?P<line>\d+), in (?P<function>.+)$\n?(?:^ +(?P<code>.*)$)?', re.M
)
_AT = re.compile(r"Graph break in user code at (?P<path>.+):(?P<line>\d+)\n")
_REASON = re.compile(r"^(?:Graph Break )?Reason: ", re.MULTILINE)
_STACK = "\nUser code traceback:\n"
_SKIPS = "cannot properly resume from this graph break, which results in a skip"
_RAISED = re.compile(r"^torch\._dynamo\.exc\.\w+: ", re.MULTILINE)
_EXPLANATION = re.compile(r"^  Explanation: (.*?)(?=^  Hint: |^  Developer debug context: |\Z)", re.M | re.S)
_HINT = re.compile(r"^  Hint: (.*?)(?=^  Hint: |^\s*$|\Z)", re.M | re.S)
_CONTEXT = "\n  Developer debug context: "
_LINK = re.compile(r"please visit: (?P<link>https://\S*/gb(?P<number>\d+)\.html)")
_NEXT_BREAK = "\n\n*** While handling this graph break, another graph break occurred: ***"
_COMPILE = re.compile(r"^\s*(?:-\s+)?(?P<id>!?\d+/\d+(?:_\d+)?): ")
_ADVICE = re.compile(r"\. (?P<hint>Guard failed on a parameter, consider using .+)$", re.DOTALL)
_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_(?P<line>\d+)$")
SKIPPED = "the function is skipped: it runs eagerly"
FULL_GRAPH = "an error: fullgraph=True"

Full = Callable[[str], str | None]
"""Returns the full path of a shortened one; None unless exactly one file in the log matches it."""


def resumed(name: str) -> tuple[str, int] | None:
    """Return the user's function that a resume function continues, and the line; None for any other function."""
    match = outer = _RESUMED.match(name)
    while match is not None:
        name = match["function"]
        match = _RESUMED.match(name)
    return None if outer is None else (name, int(outer["line"]))


@dataclass
class ParsedGuards:
    """A compile's guards, and the lines that their comments quote."""

    count: int
    guards: list[Guard]
    lines: list[SourceText]


def parsed_guards(text: str, full: Full) -> ParsedGuards:
    """Return the guards in torch's text of a tree of guard managers, counted as a record counts them.

    A check counts once, and all marks of one tensor count as one check.
    """
    lines: list[SourceText] = []
    parts: dict[str, list[str]] = {}
    guards: dict[str, Guard] = {}
    for line in text.split("\n"):
        found = _GUARD.match(line)
        if found is None:
            continue
        expression, place = _split_check(found["text"], full, lines)
        check = folded_check(expression)
        if check not in parts and len(guards) < MAXIMUM_GUARDS:
            source = _SOURCE.search(expression)
            about = None if source is None else as_written(source[0])
            guards[check] = Guard(check, found["type"], place, about)
        if expression not in parts.setdefault(check, []):
            parts[check].append(expression)
    shown = [
        msgspec.structs.replace(guard, expression=" and ".join(parts[check])[:_LONGEST])
        for check, guard in guards.items()
    ]
    return ParsedGuards(len(parts), shown, lines)


def as_written(source: str) -> str:
    """Return the guarded expression, without torch's ``L[...]`` around locals: ``x.size()[0]``."""
    return re.sub(r"^[LG]\['(\w+)'\]", r"\1", source)


def _split_check(text: str, full: Full, lines: list[SourceText]) -> tuple[str, Place | None]:
    comment = _COMMENT.search(text)
    if comment is None:
        return text.strip(), None
    at = _PLACE.search(comment["comment"])
    path = None if at is None else full(at["path"])
    place = None if at is None or path is None else Place(path, int(at["line"]))
    if place is not None and at is not None and at["code"]:
        lines.append(SourceText(place, at["code"].strip()))
    return text[: comment.start()].strip(), place


def parsed_break(text: str) -> tuple[GraphBreak, list[SourceText]]:
    """Return a graph break from the artifact ``dynamo_graph_break_reason``."""
    before, _, stack = text.partition(_STACK)
    is_skip = _SKIPS in before
    reason = _REASON.search(before)
    raised = list(_RAISED.finditer(text))
    if reason is not None:
        message = before[reason.end() :].strip()
    elif raised:
        message = text[raised[-1].end() :].strip()
    else:
        message = before.strip()
    traced, _, _ = (stack or before).partition("\nTraceback (most recent call last)")
    frames, lines = stack_of(traced)
    at = _AT.search(text)
    place = None if at is None else Place(at["path"], int(at["line"]))
    found = break_of(message, place or (frames[-1].place if frames else None))
    found.stack = frames
    found.effect = SKIPPED if is_skip else None
    return found, lines


def stack_of(text: str) -> tuple[list[StackLine], list[SourceText]]:
    """Return the frames of a traceback, and the lines that it quotes."""
    frames, lines = [], []
    for each in _FRAME.finditer(text):
        place = Place(each["path"], int(each["line"]))
        name = resumed(each["function"])
        frames.append(StackLine(place, each["function"] if name is None else name[0]))
        if each["code"]:
            lines.append(SourceText(place, each["code"].strip()))
    return frames, lines


def break_of(message: str, place: Place | None) -> GraphBreak:
    """Return a graph break from torch's message: its kind, explanation, hints and context."""
    first = message.split(_NEXT_BREAK, 1)[0]
    body, _, rest = first.partition(_CONTEXT)
    explanation = _EXPLANATION.search(body)
    link = _LINK.search(rest) or _LINK.search(body)
    head = body[: explanation.start()] if explanation else body.split("\n", 1)[0]
    kind = head.strip().rpartition("\n")[2].strip()
    return GraphBreak(
        reason=kind[:_LONGEST] or "graph break",
        place=place,
        explanation=_unindented(explanation[1])[:_MESSAGE] if explanation else None,
        hints=[_unindented(hint)[:_MESSAGE] for hint in _HINT.findall(body)],
        context=_unindented(rest.split("\n\n For more details about", 1)[0])[:_MESSAGE] or None,
        id=f"GB{link['number']}" if link else None,
        link=link["link"] if link else None,
        message=message[:_MESSAGE],
    )


def _unindented(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


def parsed_failures(text: str, full: Full) -> tuple[list[GuardFailure], list[SourceText]]:
    """Return why earlier compiles could not be used, from the artifact ``recompile_reasons``."""
    reasons = [text]
    if text.lstrip().startswith("["):
        with contextlib.suppress(msgspec.DecodeError):
            reasons = msgspec.json.decode(text.encode(errors="replace"), type=list[str])
    failures: list[GuardFailure] = []
    lines: list[SourceText] = []
    for reason in reasons:
        compiled = _COMPILE.match(reason)
        sentence, _, stack = reason[compiled.end() if compiled else 0 :].partition("\nUser stack trace:\n")
        hint = _ADVICE.search(sentence)
        expression, place = _split_check(_ADVICE.sub("", sentence).strip(), full, lines)
        frames, quoted = stack_of(stack)
        lines += quoted
        failures.append(
            GuardFailure(
                compiled["id"] if compiled else "?",
                expression[:_MESSAGE],
                reason.strip()[:_MESSAGE],
                frames[-1].place if frames else place,
                hint=None if hint is None else hint["hint"],
            )
        )
    return failures, lines
