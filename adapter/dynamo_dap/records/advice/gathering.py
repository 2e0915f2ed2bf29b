"""Gives advice on the findings of a record, the most costly first.

Torch reports each failed guard and each graph break separately. This module merges the values of a guarded object over
all calls, and a break over all functions that it cuts. It reads source files, and has no side effects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from dynamo_dap.records.advice.changes import DYNAMIC, PAGES, VALUES, changes_of, listed, merged, subject_of
from dynamo_dap.records.advice.changing_lines import lines_that_change
from dynamo_dap.records.advice.cuda_graph_items import cuda_graph_items
from dynamo_dap.records.advice.draft_exports import export_items
from dynamo_dap.records.advice.items import Item, Kind, at, called, caller_of, compiles_of
from dynamo_dap.records.advice.raced_compiles import raced_items
from dynamo_dap.records.advice.raised_items import raised_items
from dynamo_dap.records.advice.settings import settings_of_break
from dynamo_dap.records.events import Record
from dynamo_dap.records.model import Compile, CompiledFunction, GraphBreak, Place
from dynamo_dap.records.texts import recorded_line

_TORCH = re.compile(r"[/\\](?:site|dist)-packages[/\\]torch[/\\]")

LIMIT = f"{PAGES}compile/programming_model.recompilation.html#changing-the-cache-size-limit"


def what_to_do(record: Record, only: CompiledFunction | None = None) -> list[Item]:
    """Return all advice on one function or on all, in the order of ``Kind``, the most costly of each kind first."""
    functions = record.functions if only is None else [only]
    changes = [_with_lines(item, record) for function in functions for item in changes_of(function)]
    reported = {(item.function, item.subject) for item in changes}
    specialized = [item for item in _specialized(functions) if (item.function, item.subject) not in reported]
    items = [*_failures(functions), *raised_items(functions), *_limits(functions), *_breaks(functions)]
    items += [*specialized, *merged(changes), *raced_items(functions)]
    items += cuda_graph_items(functions)
    items += export_items(record.export_problems if only is None else ())
    order = list(Kind)
    return sorted(items, key=lambda one: (order.index(one.kind), -one.seconds, -len(one.compiles)))


# -- failures and limits -------------------------------------------------------------------------------------------


def _failures(functions: Iterable[CompiledFunction]) -> Iterator[Item]:
    for function, compiled in compiles_of(functions):
        if compiled.state == "failed" and not compiled.breaks and compiled.limit is None:
            title = f"{compiled.name} could not be compiled"
            problem = (compiled.problem or "torch does not say why").strip()
            place, callers = compiled.problem_place or function.place, called([caller_of(function, compiled)])
            yield Item(
                Kind.FAILED,
                title,
                [problem],
                _about_violation(problem),
                place=place,
                callers=callers,
                compiles=[compiled.id],
                seconds=compiled.seconds or 0.0,
                function=function.name,
                subject=problem.splitlines()[0],
            )


def _about_violation(problem: str) -> list[str]:
    """Return advice on a line that does not work for every size that the user marked as dynamic."""
    if not problem.startswith("ConstraintViolationError"):
        return []
    return [
        "change the line so that it works for every size that you marked, or mark fewer",
        "use torch._dynamo.maybe_mark_dynamic instead of mark_dynamic: such sizes are then compiled separately",
    ]


def _limits(functions: Iterable[CompiledFunction]) -> Iterator[Item]:
    for function in functions:
        reached = next((one for one in function.compiles if one.limit), None)
        if reached is not None:
            then = "it runs eagerly from then on"
            if reached.state == "failed":
                then = "the call fails, because of fullgraph=True"
            title = f"{function.name} was compiled too often ({reached.limit}): {then}"
            changes = changes_of(function)
            facts = [f"because: {'; '.join(one.title for one in changes)}"] if changes else []
            advice = [
                *(["keep the changing value the same, see below"] if changes else []),
                f"if you need every variant: torch._dynamo.config.{(reached.limit or '').split()[0]} = 16",
            ]
            yield Item(
                Kind.LIMIT,
                title,
                facts,
                advice,
                LIMIT,
                function.place,
                compiles=[reached.id],
                function=function.name,
                subject=reached.limit or "",
            )


# -- graph breaks --------------------------------------------------------------------------------------------------


@dataclass
class _Break:
    """One break, with all compiles that it cuts."""

    found: GraphBreak
    cut: list[tuple[CompiledFunction, Compile]] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)


def _breaks(functions: Iterable[CompiledFunction]) -> Iterator[Item]:
    found: dict[tuple[object, ...], _Break] = {}
    for function, compiled in compiles_of(functions):
        for graph_break in compiled.breaks:
            key = graph_break.reason, graph_break.explanation, graph_break.place
            known = found.setdefault(key, _Break(graph_break))
            known.cut.append((function, compiled))
            known.places += [] if graph_break.place is None else [graph_break.place]
    yield from map(_broken, _with_callers(list(found.values())))


def _with_callers(breaks: list[_Break]) -> list[_Break]:
    """Merge a break in a called function with the break that it causes in the caller.

    Dynamo reports such a break twice: first in the caller, then in the called function, which it compiles separately.
    """
    left = []
    for graph_break in breaks:
        inner = next((other for other in breaks if other is not graph_break and _is_inside(other, graph_break)), None)
        if inner is None:
            left.append(graph_break)
        else:
            inner.cut += graph_break.cut
            inner.places += graph_break.places
    return left


def _is_inside(inner: _Break, outer: _Break) -> bool:
    """Return whether ``outer`` reports, at a line that calls, the break that ``inner`` reports where it happens."""
    same = inner.found.reason == outer.found.reason and inner.found.explanation == outer.found.explanation
    place = outer.found.place
    through = {
        (line.place.path, line.place.line)
        for function, compiled in inner.cut
        for line in (*compiled.stack, *inner.found.stack[:-1])
        # The stack of a resume function has the line of its own break, which is not a call.
        if line.function != function.name
    }
    return same and place is not None and (place.path, place.line) in through


def _broken(known: _Break) -> Item:
    one = known.found
    is_torchs = one.place is not None and _TORCH.search(one.place.path) is not None
    places = list(dict.fromkeys(known.places))
    # The item is at the user's line; torch's line becomes a fact.
    place = next((each for each in places if not _TORCH.search(each.path)), one.place) if is_torchs else one.place
    where = f" at {at(place)}" if place is not None else ""
    names = list(dict.fromkeys(compiled.name for _, compiled in known.cut))
    facts = [one.explanation.replace("\n", " ")] if one.explanation else []
    facts.append(f"cuts {listed(names)}")
    others = [at(each) for each in places if each not in (place, one.place)]
    facts += [f"seen from its callers at {listed(others)}"] if others else []
    way = [f"{at(line.place)} in {line.function}" for line in one.stack[:-1]]
    facts += [f"called through {', '.join(way)}"] if way else []
    facts += [f"then {one.effect}"] if one.effect else []
    callers = called(caller_of(function, compiled) for function, compiled in known.cut)
    ids = list(dict.fromkeys(compiled.id for _, compiled in known.cut))
    title = f"Graph break{where}: {one.reason}"
    settings = settings_of_break(one)
    hints = [*(f"{setting.text}  (drops the log messages)" for setting in settings if setting.adds), *one.hints]
    if one.condition is not None:
        promised = f"torch._check({one.condition}) before the line, or its opposite, if that holds for all data"
        guarded = f"else torch.fx.experimental.symbolic_shapes.guard_or_false({one.condition})"
        hints = [f"{promised}; {guarded}", *hints]
    if one.place is not None and is_torchs:
        # Torch's hints are about its own line, which the user cannot edit.
        facts.append(f"breaks in torch's own {at(one.place)}: change your line that calls it")
        hints = [setting.text for setting in settings]
    return Item(
        Kind.BREAK,
        title,
        facts,
        hints,
        one.link,
        place,
        callers,
        ids,
        function=_innermost(known),
        subject=one.reason,
        settings=settings,
        way=[line.place for line in one.stack],
    )


def _innermost(known: _Break) -> str:
    """Return the function that contains a break's line, by its full name if that is recorded."""
    place, stack = known.found.place, known.found.stack
    for function, compiled in known.cut:
        if place is not None:
            for traced in compiled.traced:
                if traced.place.path == place.path and place.line in traced.lines:
                    return traced.name
        if len(stack) <= 1:
            return function.name
    return stack[-1].function


# -- sizes meant to vary ---------------------------------------------------------------------------------------


def _specialized(functions: Iterable[CompiledFunction]) -> Iterator[Item]:
    """Return the sizes that were symbolic (marked, or varied earlier) until the code needed a constant."""
    found: dict[tuple[str, str, Place | None], Item] = {}
    for function, compiled in compiles_of(functions):
        for one in compiled.specializations:
            name, _, value = one.expression.rpartition(" == ")
            name = subject_of(name)
            advice = [
                "each other value causes a recompile: change the line so that it needs no constant",
                "if only this value occurs: do not mark it as dynamic",
            ]
            item = Item(
                Kind.SPECIALIZED,
                f"In {compiled.name} {name} was dynamic, but this line requires {value}",
                advice=advice,
                link=DYNAMIC,
                place=one.place,
                function=function.name,
                subject=name,
            )
            item = found.setdefault((function.name, name, one.place), item)
            item.values += [] if value in item.values else [value]
            if len(item.values) > 1:
                item.advice = advice[:1]
                item.title = (
                    f"In {function.name} {name} was dynamic, but this line needs a constant: "
                    f"{', '.join(item.values[:VALUES])}"
                )
            item.compiles.append(compiled.id)
            item.callers = called([*item.callers, caller_of(function, compiled)])
    yield from found.values()


def _with_lines(item: Item, record: Record) -> Item:
    """Return an item that also names the user's lines that may change the value."""
    places = lines_that_change(item.subject, record.sources)
    if not places:
        return item
    texts = [f"{at(place)}  {recorded_line(record.sources, place)}" for place in places[:_LINES]]
    more = f" and {len(places) - _LINES} more" if len(places) > _LINES else ""
    return replace(item, facts=[*item.facts, f"may be set at: {'; '.join(texts)}{more}"])


_LINES = 3
