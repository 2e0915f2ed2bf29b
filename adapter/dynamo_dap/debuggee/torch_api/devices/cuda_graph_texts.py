"""Parses torch's sentences about CUDA graphs: the cause, and the user's line. It has no side effects."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dynamo_dap.debuggee.torch_api.graphs.graph import places_in
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place
from dynamo_dap.protocol.requests.cuda_graphs import (
    ADDRESS,
    CPU,
    DEVICES,
    DYNAMIC,
    LIMIT,
    LIVENESS,
    MUTATION,
    OPERATION,
    OTHER,
)


@dataclass(frozen=True)
class CudaGraphFacts:
    """An event of the CUDA graph of a compiled function."""

    outcome: str
    cause: str | None
    text: str
    """What happened, in one line."""
    place: Place | None = None
    """The user's line that caused it."""
    function: str | None = None
    """The function that this line is in."""
    caller: Place | None = None
    """The user's calling line, for an event while the program runs."""
    compile_id: str | None = None
    is_backward: bool = False
    count: int = 1
    """How many graphs the function has, including this one."""


@dataclass(frozen=True)
class Reason:
    """The meaning of one of torch's sentences."""

    cause: str
    text: str
    place: Place | None = None
    function: str | None = None


_SKIPPING = re.compile(r"^(?:(?:skipping|disabling) cudagraphs? due to )+")
_STACK = re.compile(r"\.?\s*Found from\s*:?\s*")
_STACK_OF_INPUT = re.compile(r"\.?\s*input stack trace:\s*")
_CAUSES = (
    # Torch 2.15 has a second limit, for inputs that another graph made.
    (re.compile(r"exceeding max re-recording limit|input re-recording threshold"), LIMIT),
    (re.compile(r"mutated inputs|input storage mutation"), MUTATION),
    (re.compile(r"^(?:cpu device|cpu ops|multiple devices: $|DeviceCopy ops)"), CPU),
    (re.compile(r"multiple devices"), DEVICES),
    (re.compile(r"symbolic shapes|dynamic shape|unbacked"), DYNAMIC),
    (re.compile(r"incompatible op|unsafe custom ops|custom partition op|Conditional ops"), OPERATION),
    (re.compile(r"pointer changed"), ADDRESS),
    (re.compile(r"dead indices"), LIVENESS),
)
_NO_CUDA = "multiple devices: "
_ADDRESSES = re.compile(r"data pointer changed from \d+ to \d+")
_OVER_THE_LIMIT = re.compile(
    r"exceeding max re-recording limit \(=(?P<limit>\d+)\) on .*? due to (?P<why>.*)", re.DOTALL
)
_NAMED_INPUT = re.compile(r"input name: (?P<name>\S+?)\.? data pointer changed")


def read_reason(message: str) -> Reason:
    """Return the meaning of torch's sentence about a CUDA graph; if it lists several inputs, that of the first."""
    text = _SKIPPING.sub("", message.strip(" \n") if message.strip() else "")
    if message.endswith(_NO_CUDA):
        return Reason(CPU, "no tensor of the graph is on a CUDA device")
    head, _, stack = _split(text)
    cause = next((cause for pattern, cause in _CAUSES if pattern.search(head)), OTHER)
    places = list(places_in(stack))
    place, function = places[-1] if places else (None, None)
    limit = _OVER_THE_LIMIT.search(head)
    if limit is not None:
        head = f"recorded again more than {limit['limit']} times, the limit; last because {_changed(limit['why'])}"
    return Reason(cause, _one_line(head), place, function)


def read_mismatch(message: str) -> Reason:
    """Return why a recording does not match a call: an input at another address, or an output that is still alive."""
    reason = read_reason(message)
    return Reason(reason.cause, _changed(reason.text), reason.place, reason.function)


def _changed(text: str) -> str:
    """Return the difference from a recording; short if torch names the first moved input."""
    named = _NAMED_INPUT.search(text)
    return text if named is None else f"input {named['name']} is at another address than when the graph was recorded"


def _split(text: str) -> tuple[str, str, str]:
    found = [match for pattern in (_STACK, _STACK_OF_INPUT) if (match := pattern.search(text)) is not None]
    if not found:
        return text, "", ""
    first = min(found, key=lambda match: match.start())
    return text[: first.start()], first[0], _first_stack(text[first.end() :])


def _first_stack(text: str) -> str:
    """Return the first stack of several: torch lists each input that changed."""
    return text.split("\ninput name: ", 1)[0]


def _one_line(text: str) -> str:
    # Addresses differ in each run.
    return " ".join(_ADDRESSES.sub("data pointer changed", text).split()).rstrip(".")
