"""Whose an id is: the bijection, and the part of a request that identifies the owner."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dynamo_dap.protocol.wire.messages import ProtocolError, to_builtins
from dynamo_dap.server.backends.ids import AGENT, ALONE, DEBUGPY, IdSpace, References


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


@pytest.mark.parametrize("space", [AGENT, DEBUGPY, ALONE])
@pytest.mark.parametrize("number", [1, 2, 7, 2**30])
def test_an_id_comes_back_as_it_went(space: IdSpace, number: int) -> None:
    sent = to_builtins(space.to_client(_raw({"variablesReference": number})))["variablesReference"]
    assert space.owns(sent)
    assert to_builtins(space.to_backend(_raw({"variablesReference": sent}))) == {"variablesReference": number}


def test_the_two_backends_share_no_id() -> None:
    given = [
        to_builtins(space.to_client(_raw({"frameId": n})))["frameId"] for space in (AGENT, DEBUGPY) for n in (1, 2, 3)
    ]
    assert len(set(given)) == len(given)
    assert not any(AGENT.owns(number) and DEBUGPY.owns(number) for number in given)


def test_zero_means_none_and_stays_zero() -> None:
    assert to_builtins(DEBUGPY.to_client(_raw({"variablesReference": 0}))) == {"variablesReference": 0}


def test_only_ids_are_translated() -> None:
    body = {
        "stackFrames": [{"id": 3, "line": 3, "source": {"sourceReference": 4, "path": "variablesReference"}}],
        "totalFrames": 3,
        "threadId": 3,
    }
    translated = to_builtins(DEBUGPY.to_client(_raw(body)))
    assert translated["stackFrames"] == [
        {"id": 7, "line": 3, "source": {"sourceReference": 9, "path": "variablesReference"}}
    ]
    assert translated["totalFrames"] == translated["threadId"] == 3


@pytest.mark.parametrize(
    ("arguments", "owned"),
    [
        ({"frameId": 5, "threadId": 1}, 5),
        ({"variablesReference": 6}, 6),
        ({"source": {"sourceReference": 7}, "sourceReference": 0}, 7),
        ({"source": {"path": "a.py"}}, None),
        ({"threadId": 1}, None),
    ],
)
def test_what_names_the_owner(arguments: dict[str, Any], owned: int | None) -> None:
    assert msgspec.json.decode(bytes(_raw(arguments)), type=References).owned == owned


def test_a_number_that_is_too_large_is_refused() -> None:
    raw = msgspec.Raw(b'{"variablesReference": 2, "width": 1e999}')
    with pytest.raises(ProtocolError, match="no field can hold"):
        AGENT.to_backend(raw)
