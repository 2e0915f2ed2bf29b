"""A program's connection goes from the server process to which it came to that which has the session with it."""

from __future__ import annotations

import asyncio
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from dynamo_dap.protocol.access.authorization import show_token
from dynamo_dap.server.launching.handing_over import ConnectionGiver, ConnectionTaker, NotTaken
from dynamo_dap.server.launching.program_listener import ProgramListener
from tests.client.timeline import DEADLINE

INFORMATION = msgspec.Raw(b'{"processId":1}')


def giving(scenario: Callable[[ProgramListener, ConnectionGiver], Awaitable[None]]) -> None:
    async def run() -> None:
        listener = ProgramListener("127.0.0.1", 0, lambda host: None)
        giver = ConnectionGiver(listener)
        try:
            await scenario(listener, giver)
        finally:
            giver.close()
            listener.close()

    asyncio.run(run())


def test_only_who_has_the_token_gets_a_connection() -> None:
    async def scenario(_: ProgramListener, giver: ConnectionGiver) -> None:
        program, connected = socket.socketpair()
        taken = asyncio.Event()
        target = giver.offer(connected, INFORMATION, taken.set, is_local=True)
        folder = Path(target.path).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for wrong in ("", "guessed", target.access_token[:-1]):
            with pytest.raises(NotTaken, match="not offered"):
                await ConnectionTaker(msgspec.structs.replace(target, access_token=wrong)).take(None)
        assert not taken.is_set()
        program.sendall(b"said before it was taken")
        taker = ConnectionTaker(target)
        received, information = await taker.take(None)
        assert bytes(information).strip() == bytes(INFORMATION)
        assert taken.is_set()
        assert not giver.withdraw(target), "it is taken"
        with pytest.raises(NotTaken, match="not offered"):
            await ConnectionTaker(target).take(None)
        # The process that had it is no longer part of it.
        taker.close()
        giver.close()
        received.setblocking(True)
        assert received.recv(100) == b"said before it was taken"
        received.sendall(b"answer")
        assert program.recv(100) == b"answer"
        program.close()
        received.close()
        assert not folder.exists()

    giving(scenario)


def test_debugpy_follows_by_a_token_of_its_own() -> None:
    async def scenario(listener: ProgramListener, giver: ConnectionGiver) -> None:
        program, connected = socket.socketpair()
        taker = ConnectionTaker(giver.offer(connected, INFORMATION, lambda: None, is_local=True))
        received, _ = await taker.take("debugpy's")
        received.close()
        program.close()
        arrived: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        waiting = asyncio.get_running_loop().create_task(taker.wait_for_debugpy(arrived.set_result))
        host, _, port = listener.address.rpartition(":")

        def come(token: str) -> socket.socket:
            debugpy = socket.create_connection((host, int(port)), timeout=DEADLINE)
            show_token(debugpy, token)
            return debugpy

        with pytest.raises(OSError, match="did not accept"):
            await asyncio.to_thread(come, "guessed")
        debugpy = await asyncio.to_thread(come, "debugpy's")
        followed = await asyncio.wait_for(arrived, DEADLINE)
        await waiting
        debugpy.sendall(b"pydevd's own")
        followed.setblocking(True)
        assert followed.recv(100) == b"pydevd's own"
        with pytest.raises(OSError, match="did not accept"):
            await asyncio.to_thread(come, "debugpy's")
        debugpy.close()
        followed.close()

    giving(scenario)


def test_what_nobody_takes_is_ended() -> None:
    async def scenario(_: ProgramListener, giver: ConnectionGiver) -> None:
        programs = [socket.socketpair() for _ in range(2)]
        targets = [giver.offer(pair[1], INFORMATION, lambda: None, is_local=True) for pair in programs]
        assert giver.withdraw(targets[0])
        assert programs[0][0].recv(1) == b""
        giver.close()
        assert programs[1][0].recv(1) == b""
        with pytest.raises(NotTaken):
            await ConnectionTaker(targets[1]).take(None)
        for pair in programs:
            pair[0].close()

    giving(scenario)
