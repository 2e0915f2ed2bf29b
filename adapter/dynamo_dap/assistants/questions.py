"""Offers tools that answer questions about a program, from the newest record or by running a command.

Runs on the server's event loop. The assistant reads the docstrings and descriptions of parameters.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, ToolAnnotations
from pydantic import Field

from dynamo_dap.assistants.answers import answer, console, last_of
from dynamo_dap.assistants.runs import INPUT, Ended, Finish, Runs
from dynamo_dap.assistants.workspace import Roots, Workspace
from dynamo_dap.checking.findings import Finding, findings_in
from dynamo_dap.checking.formats import JsonReport
from dynamo_dap.fixes.recorded_program import CannotTry, recorded_program, refuses_untrusted
from dynamo_dap.protocol.requests.comparisons import ComparisonBody
from dynamo_dap.protocol.texts import marked
from dynamo_dap.records.file import UnreadableRecord, read_record
from dynamo_dap.records.folders import records_folder, records_in
from dynamo_dap.records.report.bisection_text import Verdict, text_without_fault, verdict_text
from dynamo_dap.records.report.comparison_text import print_comparison, print_problems
from dynamo_dap.records.report.output import chosen_record
from dynamo_dap.records.report.text_report import print_report
from dynamo_dap.trace_logs.logs import is_trace, read_any

File = Annotated[
    str | None,
    Field(description="The Python file to run, below a root. Leave it out to get answers from the newest record."),
]
Module = Annotated[str | None, Field(description="A module below the folder, to run as `python -m` does.")]
Arguments = Annotated[tuple[str, ...], Field(description="The program's own arguments.")]
Input = Annotated[str | None, Field(description="What the program reads from its standard input.")]
Folder = Annotated[str | None, Field(description="The working directory, below a root; default: the first root.")]
TraceLog = Annotated[
    str | None, Field(description="A TORCH_TRACE folder, or a log in it, below a root, instead of the newest record.")
]
Seconds = Annotated[
    float, Field(gt=0, le=600, description="Seconds to wait. A longer run continues; call `wait` for its result.")
]
Line = Annotated[int, Field(ge=1, description="The line, counted from 1.")]

WAIT = 30.0
_TAIL = 3000
_OUTPUT = f"{{output-{secrets.token_hex(8)}}}"
"""Placeholder for a folder that is removed after the answer. A program's arguments cannot contain it."""

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True)
"""The annotations of a tool that runs the user's program, which may do anything."""


class Questions:
    """The tools of one client."""

    def __init__(self, workspace: Workspace, runs: Runs) -> None:
        self._workspace = workspace
        self._runs = runs

    def register(self, server: MCPServer) -> None:
        """Offer the tools."""
        server.add_tool(self.newest_record, name="what_was_recorded", annotations=READS)
        for tool in (
            self.why_did_it_break_or_recompile,
            self.which_line_is_wrong,
            self.which_kernels_compute,
            self.where_compile_time_goes,
            self.which_stage_is_wrong,
            self.what_is_cached,
            self.try_this_fix,
            self.check,
        ):
            server.add_tool(tool, annotations=RUNS)

    async def newest_record(self, roots: Roots, folder: Folder = None, trace_log: TraceLog = None) -> CallToolResult:
        """Report what torch.compile did in the newest recorded run of a folder, without running anything.

        Lists graph breaks, recompiles and skipped functions with file:line, reason and advice; times; graphs.
        With `trace_log`, report this about a log that torch wrote (TORCH_TRACE), here or on another machine.
        """
        self._workspace.take(roots)
        where = self._workspace.folder(folder)
        if trace_log is None:
            return _record_answer(where)
        path = self._workspace.existing(trace_log, where)
        if not await asyncio.to_thread(is_trace, path):
            raise ToolError(f"{path} is not a trace log of torch, and not a folder with one")
        # A log may have gigabytes, so it is read on a worker thread.
        return await asyncio.to_thread(_record_answer, where, path)

    async def why_did_it_break_or_recompile(
        self,
        roots: Roots,
        program: File = None,
        module: Module = None,
        arguments: Arguments = (),
        folder: Folder = None,
        standard_input: Input = None,
        seconds: Seconds = WAIT,
    ) -> CallToolResult:
        """Report why torch.compile broke a graph, recompiled or skipped a function: file:line, reason, hints.

        Runs the program and records it; without a program, answers from the newest record of the folder.
        """
        self._workspace.take(roots)
        if program is None and module is None:
            return _record_answer(self._workspace.folder(folder))
        given = self._workspace.program(program, module, arguments, folder)
        known = set(records_in(records_folder(given.folder)))

        def finish(ended: Ended) -> CallToolResult:
            new = [path for path in records_in(records_folder(given.folder)) if path not in known]
            if not new:
                raise ToolError(f"nothing was compiled.\n{_end_text(ended)}")
            head = f"The program ended with exit status {ended.status}." if ended.status else None
            return _record_answer(given.folder, new[-1], head and f"{head}\n{marked(last_of(ended.errors, _TAIL))}")

        return await self._ask(["run", *self._python, *given.words], given.folder, finish, seconds, standard_input)

    async def which_line_is_wrong(
        self,
        roots: Roots,
        program: File = None,
        looks_for: Annotated[
            Literal["mismatch", "nan"],
            Field(description="mismatch: what differs from uncompiled Python; nan: the first NaN or Inf."),
        ] = "mismatch",
        module: Module = None,
        arguments: Arguments = (),
        folder: Folder = None,
        standard_input: Input = None,
        seconds: Seconds = WAIT,
    ) -> CallToolResult:
        """Find the line of a compiled function whose result differs from eager, or that makes the first NaN."""
        self._workspace.take(roots)
        given = self._workspace.program(program, module, arguments, folder)
        if looks_for == "nan":
            words = [
                "debug",
                "--mark-output",
                *self._python,
                "--catch",
                "nan",
                "-c",
                "where",
                "-c",
                "locals",
                "-c",
                "quit",
            ]
            words += [] if standard_input is None else ["--input", f"{_OUTPUT}/{INPUT}"]
            what = [str(given.file)] if given.module is None else ["-m", given.module]
            words += [*what, "--", *given.arguments]
            return await self._ask(words, given.folder, _printed_last, seconds, standard_input)
        words = ["compare", "--json", *self._python, *given.words]
        return await self._ask(words, given.folder, _comparison_answer, seconds, standard_input)

    async def which_kernels_compute(
        self,
        roots: Roots,
        line: Annotated[str | None, Field(description="FILE:LINE or LINE: only the stages of this line.")] = None,
        function: Annotated[str | None, Field(description="Only compiles of functions with this in the name.")] = None,
        stage: Annotated[
            str | None,
            Field(description="Print this stage: dynamo, forward-post-grad, forward-code, kernels, ..."),
        ] = None,
        program: File = None,
        module: Module = None,
        arguments: Arguments = (),
        folder: Folder = None,
        standard_input: Input = None,
        seconds: Seconds = WAIT,
    ) -> CallToolResult:
        """Show which Inductor kernels compute which line; or one line, stage by stage; or one whole stage.

        Without a program, show what was explored last in the folder.
        """
        self._workspace.take(roots)
        options = [("--line", line), ("--function", function), ("--stage", stage)]
        words = ["explore", *(word for name, value in options if value is not None for word in (name, value))]
        cwd = self._workspace.folder(folder)
        if program is not None or module is not None:
            words += [*self._python, *self._workspace.program(program, module, arguments, folder).words]
        hint = "the resource dynamo-dap://explored lists all stages, each to be read in pages"
        return await self._ask(words, cwd, lambda ended: _printed(ended, hint), seconds, standard_input)

    async def where_compile_time_goes(
        self,
        roots: Roots,
        program: File = None,
        module: Module = None,
        arguments: Arguments = (),
        folder: Folder = None,
        standard_input: Input = None,
        seconds: Seconds = WAIT,
    ) -> CallToolResult:
        """Report where compile time goes: by stage, traced function, line and pass; also the cost of guards."""
        self._workspace.take(roots)
        given = self._workspace.program(program, module, arguments, folder)
        words = ["profile", "--output", f"{_OUTPUT}/profile", *self._python, *given.words]

        def finish(ended: Ended) -> CallToolResult:
            # Leave out the names of files, which are removed with the run's folder.
            reported = [line for line in ended.output.splitlines() if str(ended.folder) not in line]
            return _printed(replace(ended, output="\n".join(reported)))

        return await self._ask(words, given.folder, finish, seconds, standard_input)

    async def which_stage_is_wrong(
        self,
        roots: Roots,
        program: File = None,
        check: Annotated[
            str,
            Field(
                description="What counts as a correct run: `exit` (exit status 0), `output` (the same output as "
                "uncompiled), or a Python expression that is true in the program's module at its end."
            ),
        ] = "exit",
        module: Module = None,
        arguments: Arguments = (),
        folder: Folder = None,
        standard_input: Input = None,
        seconds: Seconds = WAIT,
    ) -> CallToolResult:
        """Find the wrong stage of the compile: Dynamo, AOTAutograd or Inductor, and the pass or lowering in it.

        Runs the program many times, which takes minutes.
        """
        self._workspace.take(roots)
        given = self._workspace.program(program, module, arguments, folder)
        words = ["bisect", "--json", "--check", check, *self._python, *given.words]
        return await self._ask(
            words, given.folder, lambda ended: _verdict_answer(ended, check), seconds, standard_input
        )

    async def what_is_cached(
        self,
        roots: Roots,
        program: File = None,
        function: Annotated[str | None, Field(description="Only functions of this name: fn, Model.forward.")] = None,
        module: Module = None,
        arguments: Arguments = (),
        folder: Folder = None,
        standard_input: Input = None,
        seconds: Seconds = WAIT,
    ) -> CallToolResult:
        """List what torch has cached for each function at the program's end: guards, generated code, graphs."""
        self._workspace.take(roots)
        given = self._workspace.program(program, module, arguments, folder)
        only = [] if function is None else ["--function", function]
        return await self._ask(
            ["entries", *only, *self._python, *given.words], given.folder, _printed, seconds, standard_input
        )

    async def try_this_fix(
        self,
        roots: Roots,
        file: Annotated[str, Field(description="The file with the graph break or recompile.")],
        line: Line,
        apply: Annotated[bool, Field(description="Apply the first fix that is proven to help.")] = False,
        folder: Folder = None,
        standard_input: Input = None,
        seconds: Seconds = WAIT,
    ) -> CallToolResult:
        """Try the known fixes for a graph break or recompile at a line: does it help, is the result the same?

        Runs the program of the folder's newest record that contains the file, without and with each edit.
        Edits are made on a copy and shown as diffs.
        """
        self._workspace.take(roots)
        cwd = self._workspace.folder(folder)
        path = self._workspace.file(file, cwd)
        record = _newest_with(cwd, path)
        try:
            named = recorded_program(read_record(record).started)
            refuses_untrusted(named)
        except (CannotTry, UnreadableRecord) as problem:
            raise ToolError(str(problem)) from None
        run = Path(named.folder, named.program[0])
        if not (self._workspace.has(run) and self._workspace.has(named.folder)):
            raise ToolError(f"the newest record ran {run}, which is outside of the roots: it is not run again")
        # With the digest, only the program that was checked here runs, even if the record changes meanwhile.
        words = ["fix", *self._python, "--record", str(record), "--content", named.digest]
        words += [*(["--apply"] if apply else []), f"{path}:{line}"]
        return await self._ask(words, cwd, _printed, seconds, standard_input)

    async def check(
        self,
        roots: Roots,
        program: File = None,
        max_breaks: Annotated[int | None, Field(ge=0)] = None,
        max_recompiles: Annotated[int | None, Field(ge=0)] = None,
        max_graphs: Annotated[int | None, Field(ge=0)] = None,
        max_compile_seconds: Annotated[float | None, Field(ge=0)] = None,
        no_skips: Annotated[bool, Field(description="Every function must be compiled.")] = False,
        module: Module = None,
        arguments: Arguments = (),
        folder: Folder = None,
        standard_input: Input = None,
        seconds: Seconds = WAIT,
    ) -> CallToolResult:
        """Check that the program compiles as it should. Without limits or a baseline nothing may break or recompile.

        Runs the program, and reports each new problem: file:line, reason, hints.
        """
        self._workspace.take(roots)
        given = self._workspace.program(program, module, arguments, folder)
        limits = {
            "--max-breaks": max_breaks,
            "--max-recompiles": max_recompiles,
            "--max-graphs": max_graphs,
            "--max-compile-seconds": max_compile_seconds,
        }
        words = ["check", "--json", *(f"{name}={value}" for name, value in limits.items() if value is not None)]
        words += [*(["--no-skips"] if no_skips else []), *self._python, *given.words]
        return await self._ask(words, given.folder, _check_answer, seconds, standard_input)

    @property
    def _python(self) -> list[str]:
        return ["--python", self._workspace.python]

    async def _ask(
        self, words: list[str], cwd: Path, finish: Finish, seconds: float, given: str | None
    ) -> CallToolResult:
        return await self._runs.ask(words, cwd, finish, seconds, _OUTPUT, given=given)


# -- answers from what a command printed --------------------------------------------------------------------------


def _printed(ended: Ended, hint: str | None = None) -> CallToolResult:
    if not ended.output.strip():
        raise ToolError(_end_text(ended))
    status = f"\n(exit status {ended.status})" if ended.status else ""
    problem = f"\n{marked(last_of(ended.errors, _TAIL))}" if ended.status and ended.errors.strip() else ""
    return answer(ended.output.rstrip() + status + problem, hint=hint)


def _printed_last(ended: Ended) -> CallToolResult:
    """Answer with the end of the program's output: its beginning may be long and matters less."""
    return answer(ended.output or _end_text(ended), keeps_end=True)


def _end_text(ended: Ended) -> str:
    printed = marked(last_of(ended.errors + ended.output, _TAIL))
    return f"It ended with exit status {ended.status}" + (
        f" and printed:\n{printed}" if printed else " and printed nothing."
    )


def _newest(folder: Path) -> Path:
    try:
        return chosen_record(None, folder)
    except UnreadableRecord as problem:
        raise ToolError(f"{problem}; give a program to run it now") from None


def _newest_with(folder: Path, path: Path) -> Path:
    for file in reversed(records_in(records_folder(folder))):
        with contextlib.suppress(UnreadableRecord):
            if any(os.path.realpath(one) == str(path) for one in read_record(file).sources):
                return file
    raise ToolError(f"no record mentions {path}: ask why_did_it_break_or_recompile with the program first")


def _record_answer(folder: Path, file: Path | None = None, head: str | None = None) -> CallToolResult:
    path = _newest(folder) if file is None else file
    try:
        record = read_any(path)
    except UnreadableRecord as problem:
        raise ToolError(str(problem)) from None
    screen, text = console()
    print_report(record, screen)
    found = findings_in([record], folder)
    hint = f"the resource dynamo-dap://records/{path.stem}/report has all of it in pages"
    if record.started is not None and record.started.log is not None:
        hint = f"`dynamo-dap report {shlex.quote(str(path))} --html` writes all of it as a page"
    reported = f"{head}\n{text.getvalue()}" if head else text.getvalue()
    return answer(reported, {"record": path.stem, "findings": found.findings}, hint=hint)


def _comparison_answer(ended: Ended) -> CallToolResult:
    lines = [line for line in ended.output.splitlines() if line.startswith("{")]
    if not lines and ended.status:
        raise ToolError(_end_text(ended))
    found = [msgspec.json.decode(line, type=ComparisonBody) for line in lines]
    screen, text = console()
    for each in sorted(found, key=lambda one: one.same):
        print_comparison(each, screen, with_problem=False)
    print_problems(found, screen)
    wrong = [
        f"{one.path}:{one.line} in {one.function}. Cause: {one.verdict}"
        for one in found
        if one.compared and not one.same
    ]
    count = sum(each.compared for each in found)
    below = sum(each.below_dynamo for each in found)
    only_below = f", in {below} of them only below Dynamo" if below else ""
    same = f"The same in {count} compared calls{only_below}." if count else "No call was compared."
    left_out = [f"Not compared: {one.function}: {one.verdict}" for one in found if not one.compared]
    head = "\n".join([*([f"Different: {each}" for each in wrong] or [same]), *left_out])
    return answer(f"{head}\n\n{text.getvalue()}", {"comparisons": found})


def _verdict_answer(ended: Ended, check: str) -> CallToolResult:
    if ended.status not in (0, 1) or not ended.output.strip():
        raise ToolError(_end_text(ended))
    found = msgspec.json.decode(ended.output, type=Verdict | None)
    text = text_without_fault(check) if found is None else verdict_text(found)
    return answer(f"{text}\nThe runs:\n{marked(ended.errors)}", {"verdict": found})


def _check_answer(ended: Ended) -> CallToolResult:
    if not ended.output.lstrip().startswith("{"):
        raise ToolError(_end_text(ended))
    report = msgspec.json.decode(ended.output, type=JsonReport)
    lines = ["It compiles as it should." if report.ok else "It does not compile as it should."]
    lines += [text for finding in report.new for text in _finding_text(finding)]
    lines += report.problems
    lines.append(
        f"graphs {report.graphs}, graph breaks {report.breaks}, recompiles {report.recompiles}, "
        f"{report.compile_seconds:.1f} s of compiling, {report.accepted} accepted by the baseline"
    )
    return answer("\n".join(lines), report)


def _finding_text(finding: Finding) -> list[str]:
    details = [f"    {text}" for text in finding.details] + [f"    hint (not tried): {text}" for text in finding.hints]
    return [f"{finding.where or '?'}: {finding.title} (in {finding.function})", *details]
