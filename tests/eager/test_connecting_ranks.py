"""Ranks that connect to a waiting server, as from other machines.

Two addresses of the loopback range simulate two machines. The server listens at one address, and a tunnel forwards
connections from the other, like ``ssh -R``. If the system permits it, one test runs a rank in its own network
namespace.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.wire.framing import frame
from dynamo_dap.records.folders import SUFFIX
from dynamo_dap.records.report.ranks import compare_ranks, records_of_ranks
from tests.client import Fixture, Session
from tests.client.free_program import FreeProgram
from tests.client.session import free_port
from tests.conftest import NewSession
from tests.eager.test_child_processes import DEADLINE, Family
from tests.eager.test_ranks_together import place, set_breakpoints, step, wait_for_all

RANKS = Fixture("eager/ranks")
TOGETHER = Fixture("eager/ranks_together")
SERVER, FAR = "127.0.0.2", "127.0.0.3"
CONNECT = [sys.executable, "-u", "-m", "dynamo_dap", "connect"]
TORCHRUN = [sys.executable, "-u", "-m", "torch.distributed.run", "--standalone", "-m", "--nproc-per-node=2"]
VARIABLE = "DYNAMO_DAP_CONNECT"

Start = Callable[..., FreeProgram]


@pytest.fixture
def family(new_session: NewSession) -> Family:
    return Family(new_session)


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts programs, and ends them after the test."""
    started: list[FreeProgram] = []

    def start(*arguments: Any, **how: Any) -> FreeProgram:
        started.append(FreeProgram(*arguments, **how))
        return started[-1]

    yield start
    for program in started:
        program.end()


class Tunnel:
    """Forwards connections from one address to another, like ``ssh -R``."""

    def __init__(self, listening: socket.socket, connected: Callable[[], socket.socket]) -> None:
        self._listening = listening
        self._connected = connected
        self._sockets = [listening]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, far = self._listening.accept()[0], self._connected()
                self._sockets += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Stop forwarding."""
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def listen(session: Session, *, host: str = SERVER, **options: Any) -> Any:
    """Begin to wait for ranks; return the pending answer, which arrives with the first rank."""
    if not session.client.capabilities.supports_configuration_done_request:
        session.initialize()
    return session.begin("attach", {"listen": {"host": host, "port": 0}, **options})


def exported(session: Session) -> str:
    """The value that the console says to export."""
    session.wait_for_output(f"export {VARIABLE}=")
    match = re.search(rf"export {VARIABLE}=(\S+)", session.output("console"))
    assert match is not None
    return shlex.split(match[1])[0]


def port_of(server: str) -> int:
    return int(server.partition("#")[0].rpartition(":")[2])


@pytest.fixture
def tunnel() -> Iterator[Callable[[str], str]]:
    """Opens a tunnel from the other address to a server; returns the value to export there."""
    tunnels: list[Tunnel] = []

    def tunnel(server: str) -> str:
        address, _, token = server.partition("#")
        host, _, port = address.rpartition(":")
        listening = socket.create_server((FAR, 0))
        tunnels.append(Tunnel(listening, lambda: socket.create_connection((host, int(port)), source_address=(FAR, 0))))
        return f"{FAR}:{listening.getsockname()[1]}#{token}"

    yield tunnel
    for each in tunnels:
        each.close()


def environment_of(rank: int, server: str, of: int = 2, master_port: int | None = None) -> Mapping[str, str]:
    """The environment of a rank that is the only one on its machine."""
    job = {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(of), VARIABLE: server}
    meeting = {} if master_port is None else {"MASTER_ADDR": FAR, "MASTER_PORT": str(master_port)}
    return {**os.environ, **job, **meeting}


@contextlib.contextmanager
def configured(session: Session, beginning: Any) -> Iterator[None]:
    """Wait until the first rank has connected to ``session``; set breakpoints in the body, before the rank runs."""
    session.timeline.expect_event("initialized")
    yield
    session.client.configuration_done()
    beginning.result(DEADLINE)


def test_ranks_of_another_machine_stop_and_step_together(
    family: Family, start: Start, tunnel: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first rank that connects uses this session. For the other one, the editor starts a session."""
    first = family.parent
    monkeypatch.setenv("DYNAMO_DAP_RECORDS", str(tmp_path / "of the ranks"))
    beginning = listen(first, stopRanks="together", rankOutput="plain")
    server, port = tunnel(exported(first)), free_port()
    names = [f"rank {rank} (local 0)" for rank in range(2)]
    programs = [start(TOGETHER.path, launcher=CONNECT, environment=environment_of(0, server, 2, port))]
    with configured(first, beginning):
        set_breakpoints(first, first="")
    first.wait_for_output(f"{names[0]} connected from {FAR} and is debugged in this session.")
    # Started by another parent, as on another machine.
    launcher = ["sh", "-c", '"$@"; exit $?', "sh", *CONNECT]
    programs.append(start(TOGETHER.path, launcher=launcher, environment=environment_of(1, server, 2, port)))
    assert family.wait_until_asked()["configuration"]["name"] == names[1]
    with family.child() as second:
        set_breakpoints(second, first="")
    ranks = first, second
    wait_for_all(ranks, "first")
    # Both step in ordinary Python, whichever rank gets the request.
    step(ranks, first, "next", "second")
    step(ranks, second, "next", "reduce")
    step(ranks, second, "next", "branch")
    step(ranks, first, "next", "only", "after")
    parted = f"{names[1]} has diverged: it is at {place('after')}, and {names[0]} at {place('only')}."
    for rank in ranks:
        rank.wait_for_output(parted, "console")
    first.next(at="after")
    # Both step into a trace.
    step(ranks, second, "stepIn", "traced")
    step(ranks, first, "next", "computed")
    step(ranks, first, "stepOut", "after")
    second.resume()
    first.timeline.expect_event("continued")
    wait_for_all(ranks, "first")
    for rank in ranks:
        rank.set_breakpoints(TOGETHER)
    first.resume()
    for number, program in enumerate(programs):
        program.wait_for_line(f"{number}: [14.0, 14.0]")
        assert program.process.wait(DEADLINE) == 0
    for rank in ranks:
        rank.timeline.expect_event("terminated")
        assert "not debugged" not in rank.output()
    (newest, *_) = sorted((tmp_path / "of the ranks").rglob(f"*{SUFFIX}"), reverse=True)
    compared = compare_ranks(records_of_ranks(newest))
    assert compared.ranks == [0, 1]
    assert [len(one.ranks) for one in compared.compiles] == [2], "what they compiled is beside each other"


def test_ranks_that_torchrun_starts_come_by_the_environment(family: Family, start: Start) -> None:
    """Only one rank is debugged. The other runs at full speed, and waits longer than the program's timeout."""
    seconds = 3.0
    session = family.parent
    beginning = listen(session, ranks=[1])
    environment = {**os.environ, VARIABLE: exported(session)}
    program = start(
        "dynamo_dap", "connect", str(RANKS.path), "torchrun", str(seconds), launcher=TORCHRUN, environment=environment
    )
    with configured(session, beginning):
        session.set_breakpoints(RANKS, "eager", condition="rank == 1 and n == 1")
    session.wait_for_stop("breakpoint", at="eager")
    time.sleep(2 * seconds)  # not for something to happen: this is the hold
    session.set_breakpoints(RANKS)
    session.resume()
    for rank in range(2):
        program.wait_for_line(f"[rank {rank}] {rank}: [20.0, 36.0, 52.0]")
    assert program.process.wait(DEADLINE) == 0
    printed = session.output("console")
    assert "rank 1 (local 1) connected from 127.0.0.1" in printed
    assert "these are debugged: 1;" in printed
    assert not family.has_asked_for_more


def test_two_launchers_of_one_job(family: Family, start: Start, tunnel: Callable[[str], str]) -> None:
    """As on two machines, each with a torchrun and two ranks. The first and the last rank are debugged."""
    session = family.parent
    beginning = listen(session, ranks=[0, 3], stopRanks="together")
    here = exported(session)
    port = free_port()
    programs = [
        start(
            str(RANKS.path),
            "torchrun",
            "60",
            launcher=[
                *(sys.executable, "-u", "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={node}"),
                *("--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={port}"),
                *("-m", "dynamo_dap", "connect"),
            ],
            environment={**os.environ, VARIABLE: server},
        )
        for node, server in enumerate([here, tunnel(here)])
    ]
    ranks: dict[str, Session] = {}
    with configured(session, beginning):
        session.set_breakpoints(RANKS, "eager", condition="rank == 3 and n == 1")
    came = re.search(r"(rank \d \(local \d\)) connected from \S+ and is debugged", session.output("console"))
    assert came is not None
    ranks[came[1]] = session
    name = str(family.wait_until_asked()["configuration"]["name"])
    with family.child() as other:
        other.set_breakpoints(RANKS, "eager", condition="rank == 3 and n == 1")
    ranks[name] = other
    assert sorted(ranks) == ["rank 0 (local 0)", "rank 3 (local 1)"]
    last, first = ranks["rank 3 (local 1)"], ranks["rank 0 (local 0)"]
    last.wait_for_stop("breakpoint", at="eager")
    for each in ranks.values():
        each.set_breakpoints(RANKS)
    last.resume()
    for node, program in enumerate(programs):
        for rank in (2 * node, 2 * node + 1):
            program.wait_for_line(f"[rank {rank}] {rank}: [36.0, 68.0, 100.0]")
        assert program.process.wait(DEADLINE) == 0
    for each in (first, last):
        each.timeline.expect_event("terminated")


LIGHT = """
import os, subprocess, sys, time
import dynamo_dap

dynamo_dap.connect()
says = "import os; print('child', [name for name in os.environ if name.startswith('DYNAMO_DAP')])"
subprocess.run([sys.executable, "-c", says], check=True)
print("connected", dynamo_dap.is_client_connected(), "pydevd" in sys.modules, flush=True)
n = 1  #@first
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
n += 1  #@second
print("over", n, flush=True)
"""


@pytest.fixture
def light(tmp_path: Path) -> Fixture:
    """A program that connects to the address in the environment, and continues when its argument, a file, exists."""
    program = Fixture(tmp_path / "program.py")
    program.path.write_text(LIGHT)
    return program


def test_each_rank_has_its_session_for_itself(family: Family, start: Start, light: Fixture, tmp_path: Path) -> None:
    """If one rank is killed or loses its client, the sessions of others continue. Some ranks connect late."""
    session, end = family.parent, tmp_path / "end"
    beginning = listen(session, ranks=[0, 1, 2])
    server = exported(session)
    programs = [start(light.path, str(end), environment=environment_of(0, server, of=3))]
    with configured(session, beginning):
        session.set_breakpoints(light, "first")
    session.wait_for_stop("breakpoint", at="first")
    others: list[Session] = []
    for rank in (1, 2):
        programs.append(start(light.path, str(end), environment=environment_of(rank, server, of=3)))
        assert family.wait_until_asked()["configuration"]["name"] == f"rank {rank} (local 0)"
        with family.child() as other:
            other.set_breakpoints(light, "first", "second")
        others.append(other)
        other.wait_for_stop("breakpoint", at="first")
    killed, last = others
    programs[1].process.kill()
    killed.timeline.expect_event("terminated")
    # The session to which all ranks connected: its client disconnects, and its program runs on.
    session.disconnect(terminateDebuggee=False)
    last.next()
    last.resume()
    end.touch()
    stop = last.wait_for_stop("breakpoint", at="second")
    assert stop.frame["Locals"]["n"].text == "1"
    last.resume()
    for program in (programs[0], programs[2]):
        assert program.wait_for_line("connected") == "connected True True"
        program.wait_for_line("over 2")
        assert program.process.wait(DEADLINE) == 0
    last.timeline.expect_event("terminated")


def test_ranks_that_do_not_connect_are_named(session: Session, start: Start, light: Fixture) -> None:
    """Only a rank that is not debugged connects: so the short limit ends nothing else."""
    listen(session, launchTimeout=1, ranks=[1, 2])
    server = exported(session)
    program = start(light.path, __file__, environment=environment_of(0, server, of=3))
    session.wait_for_output(f"rank 1, rank 2 did not connect to {SERVER}:{port_of(server)} within 1 s", "important")
    assert program.wait_for_line("connected") == "connected False False"
    assert program.process.wait(DEADLINE) == 0


def test_who_shows_a_wrong_token_is_refused_and_reported(session: Session, start: Start, light: Fixture) -> None:
    beginning = listen(session)
    server = exported(session)
    address, _, token = server.partition("#")
    for wrong in ("guessed", token[:-1], token + "a"):
        program = start(light.path, __file__, environment=environment_of(0, f"{address}#{wrong}"))
        refused = f"dynamo-dap: rank 0 (local 0) runs without debugging: the debug server at {address} refused"
        assert "right token" in program.wait_for_line(refused)
        # It runs without a debugger.
        assert program.wait_for_line("connected") == "connected False False"
        assert program.process.wait(DEADLINE) == 0
    reported = f"did not show the right token for {address}, and was refused."
    session.wait_for_output(reported, "important")
    # A connection from another address that sends nothing: it gets no answer, and does not block others.
    with socket.create_connection((SERVER, port_of(server)), source_address=(FAR, 0)) as unauthenticated:
        unauthenticated.sendall(frame(b'{"seq":1,"type":"request","command":"initialize"}'))
        assert b"dynamoAuthorize" in unauthenticated.recv(4096)
        assert unauthenticated.recv(1) == b""
    session.wait_for_output(f"A connection from {FAR} {reported}", "important")
    assert session.output("important").count("did not show the right token") == 2, "once of each address"
    with contextlib.ExitStack() as crowd:
        for _ in range(50):
            crowd.enter_context(socket.create_connection((SERVER, port_of(server))))
        program = start(light.path, __file__, environment=environment_of(0, server))
        with configured(session, beginning):
            session.set_breakpoints(light, "second")
    session.wait_for_stop("breakpoint", at="second")
    session.disconnect(terminateDebuggee=False)
    assert program.process.wait(DEADLINE) == 0
    assert token not in session.log(), "no log holds a token"


def test_the_token_is_not_for_what_a_rank_starts(session: Session, start: Start, light: Fixture) -> None:
    beginning = listen(session)
    program = start(light.path, __file__, environment=environment_of(0, exported(session)))
    with configured(session, beginning):
        pass
    assert VARIABLE not in program.wait_for_line("child")
    assert program.process.wait(DEADLINE) == 0


def test_waiting_has_an_end_and_says_what_for(session: Session, start: Start, light: Fixture) -> None:
    beginning = listen(session, listen={"host": SERVER, "port": 0, "timeout": 20}, ranks=[1])
    server = exported(session)
    program = start(light.path, __file__, environment=environment_of(0, server))
    with pytest.raises(RequestFailed) as failed:
        beginning.result(DEADLINE)
    where = f"{SERVER}:{port_of(server)}"
    assert "no wanted rank (1)" in str(failed.value)
    assert where in str(failed.value)
    assert "rank 0 connected" in str(failed.value)
    assert program.wait_for_line("connected") == "connected False False"
    assert program.process.wait(DEADLINE) == 0


def test_a_rank_without_a_session_runs_on(
    new_session: NewSession, start: Start, light: Fixture, tmp_path: Path
) -> None:
    """The client disconnects before it has started a session, or starts none."""
    family = Family(new_session)
    session, end = family.parent, tmp_path / "end"
    beginning = listen(session)
    server = exported(session)
    first = start(light.path, str(end), environment=environment_of(0, server))
    with configured(session, beginning):
        pass
    second = start(light.path, str(end), environment=environment_of(1, server))
    assert family.wait_until_asked()["configuration"]["name"] == "rank 1 (local 0)"
    assert "connected" not in "".join(second.lines)
    session.disconnect(terminateDebuggee=False)
    second.wait_for_line("dynamo-dap: rank 1 (local 0) runs without debugging: no session began")
    end.touch()
    for program in (first, second):
        program.wait_for_line("over 2")
        assert program.process.wait(DEADLINE) == 0
    end.unlink()
    alone = new_session()
    beginning = listen(alone)
    server = exported(alone)
    programs = [start(light.path, str(end), environment=environment_of(0, server))]
    with configured(alone, beginning):
        pass
    programs.append(start(light.path, str(end), environment=environment_of(1, server)))
    alone.wait_for_output("rank 1 (local 0) runs without debugging: this client starts no sessions.", "important")
    assert programs[1].wait_for_line("connected") == "connected False False"
    alone.disconnect(terminateDebuggee=False)
    end.touch()
    for program in programs:
        assert program.process.wait(DEADLINE) == 0


@pytest.mark.parametrize("reported", [None, "nowhere", f"{FAR}:1#token"])
def test_a_program_runs_where_no_debugger_waits(start: Start, light: Fixture, reported: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    program = start(
        light.path, __file__, environment=environment if reported is None else {**environment, VARIABLE: reported}
    )
    assert program.wait_for_line("connected") == "connected False False"
    assert program.process.wait(DEADLINE) == 0
    printed = [line for line in program.lines if line.startswith("dynamo-dap: this program runs without debugging")]
    assert len(printed) == (reported is not None)
    assert "token" not in "".join(printed).replace("HOST:PORT#TOKEN", "")


def test_other_machines_come_with_a_token_of_the_users_own(
    new_session: NewSession, start: Start, light: Fixture
) -> None:
    """The token is in an environment variable of the server that the configuration names. No message shows it."""
    session = new_session(environment={"JOB_TOKEN": "secret of the job"})
    everywhere: dict[str, Any] = {"host": "0.0.0.0", "port": 0}
    session.initialize()
    assert 'give "listen" an "accessToken"' in session.refusal("attach", {"listen": everywhere})
    missing = {**everywhere, "accessTokenVariable": "NO_TOKEN"}
    assert "NO_TOKEN is not set" in session.refusal("attach", {"listen": missing})
    twice = {**everywhere, "accessTokenVariable": "JOB_TOKEN", "accessToken": "x"}
    assert "not both" in session.refusal("attach", {"listen": twice})
    beginning = session.begin("attach", {"listen": {**everywhere, "accessTokenVariable": "JOB_TOKEN"}})
    server = exported(session)
    assert server == f"0.0.0.0:{port_of(server)}#$JOB_TOKEN"
    reported = f"{SERVER}:{port_of(server)}#secret of the job"
    program = start(light.path, __file__, environment=environment_of(0, reported))
    with configured(session, beginning):
        session.set_breakpoints(light, "second")
    session.wait_for_stop("breakpoint", at="second")
    assert "secret of the job" not in session.output() + session.log()
    session.disconnect(terminateDebuggee=False)
    assert program.process.wait(DEADLINE) == 0


def test_ranks_that_a_scheduler_starts_are_known_by_its_numbers(session: Session, start: Start, light: Fixture) -> None:
    beginning = listen(session)
    numbers = {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8", VARIABLE: exported(session)}
    program = start(light.path, __file__, launcher=CONNECT, environment={**os.environ, **numbers})
    with configured(session, beginning):
        pass
    session.wait_for_output("rank 5 (local 1) connected")
    assert program.process.wait(DEADLINE) == 0


def test_the_import_of_torch_is_untraced_in_a_rank_as_well(session: Session, start: Start, tmp_path: Path) -> None:
    """No breakpoint can stop in torch's modules, and tracing doubles the time of their import."""
    (tmp_path / "torch.py").write_text("import sys\ntraced_by = sys.gettrace()\n")
    program = Fixture(tmp_path / "program.py")
    program.path.write_text("import torch  #@import\nprint('traced by', torch.traced_by)  #@after\n")
    beginning = listen(session)
    running = start(program.path, launcher=CONNECT, environment=environment_of(0, exported(session)))
    with configured(session, beginning):
        session.set_breakpoints(program, "import", "after")
    session.wait_for_stop("breakpoint", at="import")
    session.continue_to_stop(at="after")
    session.resume()
    assert running.wait_for_line("traced by") == "traced by None"
    assert running.process.wait(DEADLINE) == 0


IN_NAMESPACE = ["unshare", "--map-root-user", "--net", "--"]


def has_network_namespaces() -> bool:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    tried = subprocess.run([*IN_NAMESPACE, "ip", "link", "set", "lo", "up"], capture_output=True, check=False)
    return tried.returncode == 0


COMPILES = """
import torch

@torch.compile(backend="eager")
def double(x):
    return x * 2  #@traced

print(double(torch.ones(2)).tolist())  #@eager
"""
RELAY = """
import os, socket, subprocess, sys
sys.path[:0] = {path!r}
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
from tests.eager.test_connecting_ranks import Tunnel, VARIABLE

def connected():
    far = socket.socket(socket.AF_UNIX)
    far.connect({relay!r})
    return far

listening = socket.create_server(("127.0.0.1", 0))
Tunnel(listening, connected)
told = "127.0.0.1:%d#{token}" % listening.getsockname()[1]
sys.exit(subprocess.run(sys.argv[1:], env={{**os.environ, VARIABLE: told}}).returncode)
"""


@pytest.mark.skipif(not has_network_namespaces(), reason="network namespaces are not permitted here")
def test_a_rank_in_a_network_of_its_own(session: Session, start: Start, tmp_path: Path) -> None:
    """From that network, only the tunnel leads to this machine."""
    beginning = listen(session, host="127.0.0.1")
    server = exported(session)
    relay = f"/tmp/dynamo-dap-relay-{os.getpid()}"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(relay)
    listening.listen()
    way = Tunnel(listening, lambda: socket.create_connection(("127.0.0.1", port_of(server))))
    try:
        root = str(Path(__file__).parents[2])
        starts = tmp_path / "starts.py"
        starts.write_text(RELAY.format(path=[root], relay=relay, token=server.partition("#")[2]))
        program = Fixture(tmp_path / "program.py")
        program.path.write_text(COMPILES)
        environment = {**os.environ, "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}
        launcher = [*IN_NAMESPACE, sys.executable, str(starts), *CONNECT]
        running = start(program.path, launcher=launcher, environment=environment)
        with configured(session, beginning):
            session.set_breakpoints(program, "eager", "traced")
        session.wait_for_output("rank 3 (local 1) connected")
        session.wait_for_stop("breakpoint", at="eager")
        stop = session.continue_to_stop(at="traced")
        assert stop.frame["Locals"]["x"].text.startswith("Tensor f32[2]")
        session.resume()
        assert running.process.wait(DEADLINE) == 0
    finally:
        way.close()
        Path(relay).unlink()
