"""Clients that write places in another way get the same places."""

from __future__ import annotations

from typing import Any

import msgspec

from dynamo_dap.protocol.wire.messages import encode_body, to_builtins
from dynamo_dap.protocol.wire.types import InitializeRequestArguments
from dynamo_dap.server.client.dialect import Dialect

ZERO = Dialect.of(InitializeRequestArguments("x", lines_start_at1=False, columns_start_at1=False, path_format="uri"))


def _backend(arguments: Any) -> Any:
    return to_builtins(ZERO.to_backend(encode_body(arguments)))


def _client(body: Any) -> Any:
    translated = ZERO.to_client(encode_body(body))
    assert isinstance(translated, msgspec.Raw)
    return to_builtins(translated)


def test_common_clients_are_not_read() -> None:
    raw = msgspec.Raw(b"not even JSON")
    for arguments in (
        InitializeRequestArguments("x"),
        InitializeRequestArguments("x", lines_start_at1=True, path_format="path"),
    ):
        dialect = Dialect.of(arguments)
        assert dialect.to_backend(raw) is raw
        assert dialect.to_client(raw) is raw


def test_requests_count_from_one_and_name_paths() -> None:
    given = {
        "source": {"path": "file:///a%20b/c.py", "adapterData": {"line": 3}},
        "breakpoints": [{"line": 0, "column": 4, "condition": "line == 3"}],
        "lines": [0, 7],
        "threadId": 0,
        "sourceModified": True,
    }
    assert _backend(given) == {
        "source": {"path": "/a b/c.py", "adapterData": {"line": 3}},
        "breakpoints": [{"line": 1, "column": 5, "condition": "line == 3"}],
        "lines": [1, 8],
        "threadId": 0,
        "sourceModified": True,
    }


def test_answers_count_from_zero_and_name_uris() -> None:
    frame = {"id": 1, "line": 1, "endLine": 2, "column": 1, "source": {"path": "/a b/c.py"}}
    virtual = {"id": 2, "line": 5, "column": 1, "source": {"name": "graph", "sourceReference": 9}}
    assert _client({"stackFrames": [frame, virtual]}) == {
        "stackFrames": [
            {"id": 1, "line": 0, "endLine": 1, "column": 0, "source": {"path": "file:///a%20b/c.py"}},
            {"id": 2, "line": 4, "column": 0, "source": {"name": "graph", "sourceReference": 9}},
        ]
    }


def test_there_and_back() -> None:
    place = {"location": {"path": "file:///tmp/x%23y.py"}, "line": 11, "column": 0}
    assert _client(_backend(place)) == place


def test_what_has_no_line_stays_at_zero() -> None:
    assert _client({"stackFrames": [{"id": 1, "line": 0, "column": 0}]}) == {
        "stackFrames": [{"id": 1, "line": 0, "column": 0}]
    }


def test_modules_and_places_of_our_own_requests() -> None:
    assert (
        _client({"reason": "new", "module": {"id": 1, "path": "/a b/c.py"}})["module"]["path"] == "file:///a%20b/c.py"
    )
    assert _client({"modules": [{"id": 1, "path": "/c.py"}]}) == {"modules": [{"id": 1, "path": "file:///c.py"}]}
    place = {"path": "/a b/c.py", "line": 3, "column": 2}
    theirs = {"path": "file:///a%20b/c.py", "line": 2, "column": 1}
    assert _client({"place": place, "resumes": [place]}) == {"place": theirs, "resumes": [theirs]}
