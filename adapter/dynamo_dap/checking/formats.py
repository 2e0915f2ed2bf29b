"""Writes a check's verdict for users, and in the formats of other tools. It has no side effects.

SARIF is OASIS's version 2.1.0 (https://docs.oasis-open.org/sarif/sarif/v2.1.0/). Annotations are the workflow commands
of GitHub Actions, which other services read as well. JUnit is the XML that pytest writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree as ET

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.markup import escape

from dynamo_dap import __version__
from dynamo_dap.checking.findings import KINDS, Finding, Found, path_seen_from
from dynamo_dap.checking.settings import Known, Verdict
from dynamo_dap.protocol.texts import counted
from dynamo_dap.records.events import Record

_RULES = {
    "failed": "A function cannot be compiled",
    "limit": "A function hit the recompile limit, and runs uncompiled",
    "graph break": "Dynamo cannot trace a line, and cuts the function there",
    "recompile": "Something changes between calls, and the function is compiled again",
    "specialized": "A dynamic size became a constant",
    "cuda graph": "A CUDA graph is skipped, recorded again, or overwrites an output still in use",
    "skipped": "A function is not compiled",
}
_PROGRAM = "the program"


class Process(Struct, rename="camel", frozen=True):
    """A process of the program that compiled something."""

    id: int
    program: str
    """Its command line, without the interpreter."""
    compiles: int
    ended: bool
    """Whether it ended normally; otherwise it was killed, or still runs."""


@dataclass(frozen=True)
class ProgramOutcome:
    """The program's outcome."""

    status: int | None
    """Its exit status; None if records were read and nothing was run."""
    processes: list[Process]


def processes_of(records: Iterable[Record]) -> list[Process]:
    """Return the processes that the records describe."""
    return [
        Process(
            record.started.process,
            " ".join(record.started.program),
            sum(1 for _ in record.compiles()),
            record.ended is not None,
        )
        for record in records
        if record.started is not None and record.started.log is None
    ]


class JsonReport(Struct, rename="camel"):
    """The output of ``--json``."""

    ok: bool
    problems: list[str]
    """The exceeded limits, one sentence each."""
    new: list[Finding]
    """The findings to fix."""
    accepted: int
    """How many of the program's findings the baseline accepts."""
    gone: list[Known]
    """The baseline's findings that no longer occur."""
    breaks: int
    recompiles: int
    graphs: int
    compile_seconds: float
    program_status: int | None
    """The exit status of the program; None if records were read and nothing was run."""
    processes: list[Process]


def as_json(verdict: Verdict, found: Found, ran: ProgramOutcome) -> bytes:
    """Return the verdict as the JSON of ``JsonReport``."""
    totals = found.program.totals
    report = JsonReport(
        verdict.is_good,
        verdict.problems,
        verdict.new,
        verdict.known,
        verdict.gone,
        totals.breaks,
        totals.recompiles,
        totals.graphs,
        totals.compile_seconds,
        ran.status,
        ran.processes,
    )
    return msgspec.json.format(msgspec.json.encode(report), indent=2)


def print_verdict(verdict: Verdict, found: Found, console: Console) -> None:
    """Print the verdict for a user."""
    for finding in verdict.new:
        title = finding.title if finding.function in finding.title else f"{finding.title}, in {finding.function}"
        console.print(f"[red]{escape(finding.where or '?')}[/red]  [bold]{escape(title)}[/bold]", soft_wrap=True)
        for text in finding.details:
            console.print(f"    {escape(text)}", soft_wrap=True)
        for text in finding.hints:
            console.print(f"    [green]hint (not tried):[/green] {escape(text)}", soft_wrap=True)
    for problem in verdict.problems:
        console.print(f"[red]{escape(problem)}[/red]", soft_wrap=True)
    totals = found.program.totals
    counts = ", ".join(
        (
            counted(totals.graphs, "graph"),
            counted(totals.breaks, "graph break"),
            counted(totals.recompiles, "recompile"),
        )
    )
    accepted = f"; {verdict.known} accepted by the baseline" if verdict.known else ""
    console.print(f"dynamo-dap: {counts}, {totals.compile_seconds:.1f} s of compiling{accepted}", soft_wrap=True)
    if verdict.gone:
        are, them = ("is", "it") if len(verdict.gone) == 1 else ("are", "them")
        console.print(
            f"{counted(len(verdict.gone), 'finding')} of the baseline {are} gone: remove {them} with --update"
        )


def as_sarif(verdict: Verdict) -> bytes:
    """Return new findings as SARIF 2.1.0, with paths relative to ``%SRCROOT%``, the folder of the check."""
    log = {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "dynamo-dap",
                        "version": __version__,
                        "rules": [{"id": _rule(kind), "shortDescription": {"text": _RULES[kind]}} for kind in KINDS],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_sarif_result(finding) for finding in verdict.new],
                "invocations": [
                    {
                        "executionSuccessful": True,
                        "toolExecutionNotifications": [
                            {"level": "error", "message": {"text": problem}} for problem in verdict.problems
                        ],
                    }
                ],
            }
        ],
    }
    return msgspec.json.format(msgspec.json.encode(log), indent=2)


def _rule(kind: str) -> str:
    return kind.replace(" ", "-")


def _sarif_result(finding: Finding) -> dict[str, object]:
    result: dict[str, object] = {
        "ruleId": _rule(finding.kind),
        "ruleIndex": KINDS.index(finding.kind),
        "level": "error",
        "message": {"text": _whole_text(finding)},
        # The fingerprint stays the same when lines move: code hosts recognize known findings by it.
        "partialFingerprints": {"finding/v1": hashlib.sha256("\0".join(finding.key).encode()).hexdigest()},
    }
    if finding.path is not None:
        is_below = not Path(finding.path).is_absolute()
        location = (
            {"uri": quote(finding.path), "uriBaseId": "%SRCROOT%"} if is_below else {"uri": Path(finding.path).as_uri()}
        )
        region = {"startLine": finding.line or 1, **({"startColumn": finding.column} if finding.column else {})}
        result["locations"] = [
            {
                "physicalLocation": {"artifactLocation": location, "region": region},
                "logicalLocations": [{"fullyQualifiedName": finding.function, "kind": "function"}],
            }
        ]
    return result


def _whole_text(finding: Finding) -> str:
    hints = [f"Hint (not tried): {hint}" for hint in finding.hints]
    return "\n".join([f"{finding.title} (in {finding.function})", *finding.details, *hints])


def workflow_commands(verdict: Verdict) -> Iterator[str]:
    """Yield one command for each finding and each exceeded limit; GitHub shows them beside the code."""
    for finding in verdict.new:
        place = "" if finding.path is None else f" file={_escaped(finding.path, ',:')},line={finding.line or 1},"
        title = _escaped(f"torch.compile: {finding.kind}", ",:")
        yield f"::error{place or ' '}title={title}::{_escaped(_whole_text(finding))}"
    for problem in verdict.problems:
        yield f"::error title=torch.compile::{_escaped(problem)}"


def _escaped(text: str, more: str = "") -> str:
    for character in ("%", "\r", "\n", *more):
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def as_junit(verdict: Verdict, found: Found, folder: Path) -> bytes:
    """Return a test case for each compiled function, and one for the limits of the whole program."""
    cases: dict[str, list[Finding]] = {name: [] for name in found.functions}
    for finding in verdict.new:
        cases.setdefault(finding.function, []).append(finding)
    count = len(cases) + 1
    failures = sum(map(bool, cases.values())) + bool(verdict.problems)
    counts = {"tests": str(count), "failures": str(failures), "errors": "0", "skipped": "0"}
    suites = ET.Element("testsuites")
    suite = ET.SubElement(suites, "testsuite", {"name": "dynamo-dap", **counts})
    for name, findings in cases.items():
        part = found.functions.get(name)
        path = findings[0].path if findings else None
        if path is None and part is not None and part.place is not None:
            path = path_seen_from(folder, part.place.path)
        seconds = 0.0 if part is None else part.totals.compile_seconds
        case = ET.SubElement(
            suite, "testcase", {"classname": path or "torch.compile", "name": name, "time": f"{seconds:.3f}"}
        )
        _add_failure(case, [finding.title for finding in findings], [_with_place(finding) for finding in findings])
    _add_failure(
        ET.SubElement(suite, "testcase", {"classname": "torch.compile", "name": _PROGRAM, "time": "0"}),
        verdict.problems,
        verdict.problems,
    )
    return bytes(ET.tostring(suites, encoding="utf-8", xml_declaration=True))


def _with_place(finding: Finding) -> str:
    return f"{finding.where}: {_whole_text(finding)}" if finding.where else _whole_text(finding)


def _add_failure(case: ET.Element, messages: list[str], texts: list[str]) -> None:
    if messages:
        failure = ET.SubElement(case, "failure", {"message": _for_xml("; ".join(messages))})
        failure.text = _for_xml("\n\n".join(texts))


def _for_xml(text: str) -> str:
    """Return text without the characters that XML cannot contain."""
    return "".join(one if one in "\t\n" or one >= " " else "�" for one in text)
