"""Offers pages to read: records, graphs, generated code, explored stages and kernels.

Runs on worker threads of the server. It reads only files that our commands wrote for the client's roots.
"""

from __future__ import annotations

from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError

from dynamo_dap.assistants.answers import console, page_of
from dynamo_dap.assistants.workspace import Workspace
from dynamo_dap.explore.file import UnreadableStages, read_run, stages_in
from dynamo_dap.explore.model import Explored
from dynamo_dap.records.events import Record
from dynamo_dap.records.file import UnreadableRecord, read_record
from dynamo_dap.records.folders import records_folder, records_in
from dynamo_dap.records.model import Compile
from dynamo_dap.records.report.output import as_json
from dynamo_dap.records.report.text_report import print_report
from dynamo_dap.records.texts import readable_graph

SCHEME = "dynamo-dap://"


class Resources:
    """The resources of one client."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def register(self, server: MCPServer) -> None:
        """Offer the resources."""
        for uri, read, what in (
            ("records", self.records, "The recorded runs of the roots, and the compiles of the newest"),
            ("explored", self.explored, "The stages of the program that was explored last: graphs, code, kernels"),
            ("records/{record}/report{?page}", self.report, "What torch.compile did in a run, as text"),
            ("records/{record}/json{?page}", self.json, "A record as JSON; its schema: dynamo-dap schema report"),
            ("records/{record}/graphs/{compile_id}{?page}", self.graphs, "The graphs of a compile, as Python"),
            ("records/{record}/code/{compile_id}{?page}", self.code, "The bytecode that Dynamo generated"),
            ("explored/{compile_id}/{stage}{?page}", self.stage, "A stage of a compile: forward-code, forward-kernels"),
        ):
            server.resource(SCHEME + uri, name=read.__name__, description=what, mime_type="text/plain")(read)

    def records(self) -> str:
        """List the runs."""
        lines = []
        for root in self._workspace.roots:
            files = records_in(records_folder(root))
            lines.append(f"{root}: {len(files)} recorded runs, the newest first")
            for number, file in enumerate(reversed(files)):
                lines += _reported(file, with_compiles=number == 0)
        return page_of("\n".join(lines), 1)

    def report(self, record: str, page: int = 1) -> str:
        """Return the report of a run."""
        screen, text = console()
        print_report(self._record(record), screen)
        return page_of(text.getvalue(), page)

    def json(self, record: str, page: int = 1) -> str:
        """Return everything that was recorded."""
        return page_of(as_json(self._record(record)).decode(), page)

    def graphs(self, record: str, compile_id: str, page: int = 1) -> str:
        """Return the graphs of a compile."""
        compiled = _compile(self._record(record), compile_id)
        texts = [readable_graph(graph, compiled.name) for graph in compiled.graphs]
        return page_of("\n".join(texts) or "It has no graph.", page)

    def code(self, record: str, compile_id: str, page: int = 1) -> str:
        """Return the generated code of a compile."""
        return page_of(_compile(self._record(record), compile_id).generated or "None was recorded.", page)

    def explored(self) -> str:
        """List the compiles that were explored, and their stages."""
        lines = []
        for each in self._newest_stages():
            lines.append(f"{each.name} [{each.id}] {each.place.path}:{each.place.line}")
            for document in each.documents:
                uri = f"{SCHEME}explored/{_in_uri(each.id)}/{document.id}"
                lines.append(f"  {document.title}, {document.text.count(chr(10)) + 1} lines: {uri}")
        return page_of("\n".join(lines) or "Nothing was explored: use the tool which_kernels_compute", 1)

    def stage(self, compile_id: str, stage: str, page: int = 1) -> str:
        """Return one stage of a compile."""
        for each in self._newest_stages():
            for document in each.documents:
                if _in_uri(each.id) == compile_id and document.id == stage:
                    return page_of(document.text, page)
        raise ResourceNotFoundError(f"{compile_id} has no stage {stage}; see {SCHEME}explored")

    def _newest_stages(self) -> list[Explored]:
        files = [file for root in self._workspace.roots for file in stages_in(records_folder(root))]
        if not files:
            return []
        try:
            return read_run(max(files, key=lambda file: file.name))
        except UnreadableStages as problem:
            raise ResourceNotFoundError(str(problem)) from None

    def _record(self, name: str) -> Record:
        # The name is compared with the file names, so it cannot lead to another folder.
        files = {file.stem: file for root in self._workspace.roots for file in records_in(records_folder(root))}
        if name not in files:
            raise ResourceNotFoundError(f"unknown record {name}; see {SCHEME}records")
        try:
            return read_record(files[name])
        except UnreadableRecord as problem:
            raise ResourceNotFoundError(str(problem)) from None


def _reported(file: Path, *, with_compiles: bool) -> list[str]:
    uri = f"{SCHEME}records/{file.stem}"
    try:
        record = read_record(file) if with_compiles else None
    except UnreadableRecord as problem:
        return [f"  {file.stem}: {problem}"]
    if record is None:
        return [f"  {uri}/report"]
    program = " ".join(record.started.program) if record.started else "?"
    lines = [f"  {uri}/report  {program}"]
    for _, one in record.compiles():
        parts = [
            f"{uri}/graphs/{_in_uri(one.id)}" if one.graphs else "",
            f"{uri}/code/{_in_uri(one.id)}" if one.generated else "",
        ]
        lines.append(f"    {one.name} [{one.id}] {' '.join(filter(None, parts))}")
    return lines


def _compile(record: Record, compile_id: str) -> Compile:
    for _, compiled in record.compiles():
        if _in_uri(compiled.id) == compile_id:
            return compiled
    raise ResourceNotFoundError(f"unknown compile {compile_id}; see {SCHEME}records")


def _in_uri(compile_id: str) -> str:
    """Return a compile's id without a URI's separator: ``0/1`` is ``0-1``."""
    return compile_id.replace("/", "-").replace("#", "~")
