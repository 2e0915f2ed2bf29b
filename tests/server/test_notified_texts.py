"""VS Code makes links of Markdown in a notification, and a click on one runs a command: a program's text has none."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from typing import Any

import msgspec
import pytest

from dynamo_dap.protocol.requests.contract import ErrorId
from dynamo_dap.protocol.texts import without_links
from dynamo_dap.protocol.wire.messages import Request, Response
from dynamo_dap.protocol.wire.streams import SocketStream
from dynamo_dap.server.client.errors import RequestRefused
from dynamo_dap.server.client.ide import Client
from tests.protocol.test_connection import Recorder

LINK = re.compile(r"""\[([^\]]+)\]\(((?:https?:\/\/|command:|file:)[^\)\s]+)(?: (["'])(.+?)(\3))?\)""", re.IGNORECASE)
"""What VS Code takes for one: ``parseLinkedText`` in its ``linkedText.ts``."""
COMMAND = "[Show](command:workbench.action.terminal.sendSequence?%7B%22text%22%3A%22id%22%7D)"
LINKS = [COMMAND, "[a](COMMAND:b 'c')", "[[a](file:///etc/passwd)", "[a](https://example.org)", f"x {COMMAND}{COMMAND}"]


def _sent(*bodies: Any) -> list[dict[str, Any]]:
    """Return what a client receives for events, refusals and answers."""
    ours, theirs = socket.socketpair()

    async def send() -> None:
        client = Client(SocketStream(ours), Recorder(), is_trusted=True)
        request = Request(1, "variables", msgspec.Raw(b"{}"))
        for body in bodies:
            if isinstance(body, Response):
                client.forward_response(request, body)
            elif isinstance(body, RequestRefused):
                client.refuse(request, body)
            elif isinstance(body, str):
                client.output(body, "important")
            else:
                client.event("output", msgspec.Raw(json.dumps(body).encode()))
        client.close()

    asyncio.run(send())
    with theirs.makefile("rb") as file:
        return [json.loads(part.split(b"\r\n\r\n")[1]) for part in file.read().split(b"Content-Length: ")[1:]]


@pytest.mark.parametrize("link", LINKS)
def test_a_link_is_text_where_the_user_is_notified(link: str) -> None:
    assert LINK.search(link)
    error = {"id": 1, "format": "{a}", "variables": {"a": link}, "showUser": True}
    error |= {"url": "command:workbench.action.quit", "urlLabel": "Help"}
    answer = Response(1, "variables", success=False, body=msgspec.Raw(json.dumps({"error": error}).encode()))
    refusal = RequestRefused(ErrorId.ACCESS_DENIED, link, show_user=True)
    event = {"category": "important", "output": link, "data": {"own": 1}}
    printed, passed_on, answered, refused = _sent(link, event, answer, refusal)
    assert printed["body"]["output"] == without_links(link) + "\n"
    assert passed_on["body"] == {**event, "output": without_links(link)}
    for one in (answered, refused):
        shown = one["body"]["error"]
        assert "url" not in shown
        assert shown["format"].replace("{text}", shown["variables"]["text"]) == without_links(link)
    assert LINK.search(without_links(link)) is None


def test_what_is_only_printed_stays_as_it_is() -> None:
    events = [{"category": "stdout", "output": COMMAND}, {"output": COMMAND}]
    assert [each["body"] for each in _sent(*events)] == events
    error = {"id": 1, "format": COMMAND}
    answer = Response(1, "variables", success=False, body=msgspec.Raw(json.dumps({"error": error}).encode()))
    assert [each["body"] for each in _sent(answer)] == [{"error": error}]
    assert without_links("x[0](y) [a] (b)") == "x[0](y) [a] (b)"
