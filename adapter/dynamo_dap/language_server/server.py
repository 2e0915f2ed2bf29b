"""Answers the editor's requests from the newest records, and publishes diagnostics.

A trace log in the settings takes precedence over records. Everything but trials and the writing of reports runs on
pygls's event loop, which also polls for new records.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from dynamo_dap import __version__
from dynamo_dap.fixes.document import Document, Positions, real_path
from dynamo_dap.fixes.edits import Fix, Situation
from dynamo_dap.fixes.findings import Finding, findings_of
from dynamo_dap.fixes.makers import fixes_of
from dynamo_dap.fixes.recorded_program import CannotTry
from dynamo_dap.fixes.trial import Trial, runner_of
from dynamo_dap.language_server.following import RecordFollower
from dynamo_dap.language_server.presentation import (
    OPEN_RECORD,
    TRY_FIX,
    WRITE_REPORT,
    action_of,
    diagnostic_of,
    lenses,
    lines_of,
    place_to_try,
    record_text,
    stop_of,
    trial_of,
    workspace_edit,
)
from dynamo_dap.language_server.report_page import ReportPage
from dynamo_dap.language_server.trace_log import TraceLogFollower
from dynamo_dap.language_server.trials import Trials
from dynamo_dap.language_server.values import hover, inlay_hints, make_ready
from dynamo_dap.language_server.workspace import Documents, path_of, roots_of
from dynamo_dap.protocol.texts import without_links
from dynamo_dap.records.events import Record
from dynamo_dap.records.file import UnreadableRecord
from dynamo_dap.records.model import Place

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.3
_TYPING_SECONDS = 0.15
_TRIAL_SECONDS = 600.0
_WARNING = types.MessageType.Warning
SECTION = "dynamo"
"""The section of the client's settings: ``inlayHints``, ``diagnostics``, ``traceLog`` and ``pathMappings`` are ours."""
BREAKPOINTS = "breakpoints"
"""An option of ``initialize``: whether the client has the command ``STOP_WHERE_SET``."""
_MOST_SHOWN = 5


@dataclass
class _Shown:
    """A record, with its findings and the present texts of its files."""

    record: Record
    findings: dict[str, list[Finding]]
    documents: Documents = field(default_factory=Documents)
    is_of_log: bool = False


class RecordServer(LanguageServer):
    """Shows the newest record of each file of the workspace."""

    def __init__(self) -> None:
        super().__init__("dynamo-dap", __version__)
        self._follower = RecordFollower(lambda: roots_of(self.workspace))
        self._trace = TraceLogFollower()
        self._reported: str | None = None
        """The problem of the trace log that was reported last."""
        self._shown: list[_Shown] = []
        """Records, the newest first. Older ones stay for files that no newer record contains."""
        self._published: dict[str, list[types.Diagnostic]] = {}
        """The diagnostics that were sent to the client, by URI."""
        self._settings: dict[str, bool] = {}
        self._watching: asyncio.Task[None] | None = None
        self._publishing: asyncio.TimerHandle | None = None
        self._trials = Trials(self, self._apply, self.publish)
        self._reports: tempfile.TemporaryDirectory[str] | None = None
        """The folder of texts that the client was asked to show."""
        self._page: ReportPage | None = None
        """The report that was written last."""
        self._finishing: asyncio.Task[None] | None = None
        """The task that writes the rest of that report."""

    # -- following the record --------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Start to watch for new records."""
        await self._ask_for_changes_of_settings()
        await self.read_settings(None)
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def _ask_for_changes_of_settings(self) -> None:
        workspace = self.client_capabilities.workspace
        known = workspace.did_change_configuration if workspace else None
        if known is not None and known.dynamic_registration:
            options = types.DidChangeConfigurationRegistrationOptions(SECTION)
            registration = types.Registration("settings", types.WORKSPACE_DID_CHANGE_CONFIGURATION, options)
            await self.client_register_capability_async(types.RegistrationParams([registration]))

    async def _watch(self) -> None:
        while True:
            try:
                if self._follower.poll() | self._poll_trace():
                    await self._changed()
            except Exception:  # noqa: BLE001 (a record or file that we cannot handle must not end the watching)
                _log.exception("following the record")
            await asyncio.sleep(0.0 if self._trace.is_reading else _POLL_SECONDS)

    def _poll_trace(self) -> bool:
        changed = self._trace.poll(next(iter(roots_of(self.workspace)), None))
        problem = self._trace.problem
        if problem is not None and problem != self._reported:
            self.window_show_message(types.ShowMessageParams(_WARNING, without_links(problem)))
        self._reported = problem
        return changed

    async def _changed(self) -> None:
        newest, logged = self._follower.record, self._trace.record
        if newest is not None:
            self._show(newest, is_of_several=self._follower.is_of_several)
        self._shown = [one for one in self._shown if not one.is_of_log or one.record is logged]
        if logged is not None:
            # The user named this log, so it takes precedence over newer records of the same files.
            self._show(logged, is_of_log=True)
        self._trials.forget()
        self.publish()
        for record in (newest, logged):
            if record is not None:
                make_ready(record)
        await self._refresh()

    def _show(self, record: Record, *, is_of_several: bool = False, is_of_log: bool = False) -> None:
        earlier = [one for one in self._shown if one.record is not record]
        now = next((one for one in self._shown if one.record is record), _Shown(record, {}, is_of_log=is_of_log))
        now.findings = findings_of(record, is_of_several=is_of_several)
        self._shown = [now, *earlier][:_MOST_SHOWN]

    async def _refresh(self) -> None:
        workspace = self.client_capabilities.workspace
        if workspace is None:
            return
        with contextlib.suppress(Exception):
            # A client that cannot refresh asks again later.
            if workspace.inlay_hint and workspace.inlay_hint.refresh_support:
                await self.workspace_inlay_hint_refresh_async(None)
            if workspace.code_lens and workspace.code_lens.refresh_support:
                await self.workspace_code_lens_refresh_async(None)

    # -- diagnostics -----------------------------------------------------------------------------------------------

    def publish_soon(self) -> None:
        """Publish when the user pauses while typing; requests in between are answered at once."""
        if self._publishing is not None:
            self._publishing.cancel()
        self._publishing = asyncio.get_running_loop().call_later(_TYPING_SECONDS, self.publish)

    def publish(self) -> None:
        """Send every finding to the client, and clear removed ones."""
        found: dict[str, list[types.Diagnostic]] = {}
        paths = dict.fromkeys(path for one in self._shown for path in one.findings)
        for path in paths if self._is_on("diagnostics") else ():
            document = self.document(path)
            if document is not None and self._is_shown(document):
                found[document.uri] = [diagnostic for _, diagnostic in self._diagnostics(document)]
        for uri in [*found, *(uri for uri in self._published if uri not in found)]:
            diagnostics = found.get(uri, [])
            if self._published.get(uri, []) != diagnostics:
                self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, diagnostics))
        self._published = {uri: diagnostics for uri, diagnostics in found.items() if diagnostics}

    def _is_shown(self, document: Document) -> bool:
        """Return whether a document is open, or is a user's file in the workspace: the user cannot fix others."""
        opened = any(path_of(uri) == document.path for uri in self.workspace.text_documents)
        if opened or any(document.path in map(real_path, one.record.libraries) for one in self._shown):
            return opened
        return any(document.path.startswith(f"{root.resolve()}/") for root in roots_of(self.workspace))

    def _diagnostics(self, document: Document) -> list[tuple[Finding, types.Diagnostic]]:
        findings = self._findings_in(document)
        made = []
        for finding in findings:
            tried = list(self._tried(document, finding, findings))
            diagnostic = diagnostic_of(document, finding, self._positions, self.document_at, tried)
            if diagnostic is not None:
                made.append((finding, diagnostic))
        return made

    def _tried(self, document: Document, finding: Finding, findings: list[Finding]) -> Iterator[Trial]:
        """Yield the trials of a finding's fixes on the present code."""
        known = self._known(document.path) if self._trials.has_any else None
        lines = lines_of(document, finding)
        if known is None or lines is None:
            return
        for fix in fixes_of(Situation(finding, document, lines[0], findings, self.document_at, known[0].record)):
            for one in (fix, *self._trials.further(document, fix)):
                trial = self._trials.of(document, one)
                if trial is not None:
                    yield trial

    # -- data for features ----------------------------------------------------------------------------------------

    @property
    def record(self) -> Record | None:
        """The record of the trace log in the settings; without one, the newest record."""
        return self._trace.record or self._follower.record

    @property
    def _positions(self) -> Positions:
        return Positions(self.workspace.position_codec)

    def document(self, path: str) -> Document | None:
        """Return a recorded file with its present text."""
        found = self._known(path)
        return None if found is None else found[1]

    def _known(self, path: str) -> tuple[_Shown, Document] | None:
        """Return the newest record that contains a file, and the file."""
        for one in self._shown:
            document = one.documents.of_path(self.workspace, one.record, path)
            if document is not None:
                return one, document
        return None

    def _findings_in(self, document: Document) -> list[Finding]:
        known = self._known(document.path)
        return [] if known is None else known[0].findings.get(document.path, [])

    def document_at(self, place: Place) -> Document | None:
        """Return a place's file."""
        return self.document(place.path)

    def _asked(self, uri: str) -> tuple[Record, Document] | None:
        path = path_of(uri)
        known = self._known(path) if path else None
        return None if known is None else (known[0].record, known[1])

    # -- settings --------------------------------------------------------------------------------------------------

    async def read_settings(self, given: object) -> None:
        """Read the client's settings: ask for them if the client can answer, otherwise take those ``given``."""
        known = self.client_capabilities.workspace
        if known is not None and known.configuration:
            item = types.ConfigurationItem(section=SECTION)
            answers = await self.workspace_configuration_async(types.ConfigurationParams([item]))
            given = answers[0] if answers else None
        elif isinstance(given, dict):
            given = given.get(SECTION, given)
        self.take_options(given)

    def take_options(self, options: object) -> None:
        """Take the client's settings, or the options of ``initialize``."""
        if isinstance(options, dict):
            self._settings.update({name: value for name, value in options.items() if isinstance(value, bool)})
            self._trace.take(options)

    async def settings_changed(self, given: object) -> None:
        """Read the client's settings (``workspace/didChangeConfiguration``)."""
        await self.read_settings(given)
        if self._trace.record is None:
            # The settings no longer name the log that is shown.
            self._shown = [one for one in self._shown if not one.is_of_log]
        self.publish()
        await self._refresh()

    def _is_on(self, name: str) -> bool:
        return self._settings.get(name, True)

    # -- answers ---------------------------------------------------------------------------------------------------

    def inlay_hints(self, params: types.InlayHintParams) -> list[types.InlayHint]:
        """Return shapes for the visible lines (``textDocument/inlayHint``)."""
        asked = self._asked(params.text_document.uri)
        if asked is None or not self._is_on("inlayHints"):
            return []
        lines = range(params.range.start.line + 1, params.range.end.line + 2)
        return inlay_hints(*asked, self._positions, lines)

    def hover(self, params: types.HoverParams) -> types.Hover | None:
        """Return the record's text for a position (``textDocument/hover``)."""
        asked = self._asked(params.text_document.uri)
        if asked is None:
            return None
        line, column = self._positions.place(asked[1], params.position)
        return hover(*asked, self._positions, line, column)

    def lenses(self, params: types.CodeLensParams) -> list[types.CodeLens]:
        """Return a lens for each compiled function (``textDocument/codeLens``)."""
        asked = self._asked(params.text_document.uri)
        return [] if asked is None else lenses(*asked, self._positions)

    def actions(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        """Return fixes for a line (``textDocument/codeAction``)."""
        asked = self._asked(params.text_document.uri)
        if asked is None:
            return []
        record, document = asked
        wanted = range(params.range.start.line + 1, params.range.end.line + 2)
        actions = []
        for diagnostic, fix in self._fixes(record, document, wanted):
            trial = self._trials.of(document, fix)
            if trial is not None and trial.changes_result and not self._shows_disabled:
                continue
            if trial is not None or not fix.needs_trial:
                actions.append(action_of(fix, diagnostic, self._positions, trial))
            if trial is None:
                actions.append(trial_of(fix, diagnostic, params.text_document.uri))
        return [*actions, *self._stops(document, wanted)]

    def _stops(self, document: Document, wanted: range) -> Iterator[types.CodeAction]:
        """Yield the actions that set breakpoints, if the editor says that it can."""
        if not self._settings.get(BREAKPOINTS, False):
            return
        for finding, diagnostic in self._diagnostics(document):
            lines = lines_of(document, finding)
            action = stop_of(finding, diagnostic, self.document_at)
            if lines is not None and lines[0] in wanted and action is not None:
                yield action

    @property
    def _shows_disabled(self) -> bool:
        text_document = self.client_capabilities.text_document
        known = text_document.code_action if text_document else None
        return bool(known and known.disabled_support)

    def _fixes(self, record: Record, document: Document, wanted: range) -> Iterator[tuple[types.Diagnostic, Fix]]:
        for finding, diagnostic in self._diagnostics(document):
            lines = lines_of(document, finding)
            if lines is not None and lines[0] in wanted:
                found = self._findings_in(document)
                situation = Situation(finding, document, lines[0], found, self.document_at, record)
                for fix in fixes_of(situation):
                    yield diagnostic, fix
                    yield from ((diagnostic, one) for one in self._trials.further(document, fix))

    def try_fix(self, given: Sequence[Any]) -> None:
        """Run the recorded program without a fix and with it; afterwards a proven fix is preferred.

        Returns at once: clients do not wait for minutes.
        """
        place = place_to_try(given)
        if place is None:
            self._trials.report(
                f"{TRY_FIX} takes one argument: an object with uri, line and optionally title.", _WARNING
            )
            return
        asked = self._asked(place.uri)
        known = self._fixes(*asked, range(place.line + 1, place.line + 2)) if asked is not None else ()
        fixes = {fix.title: fix for _, fix in known if place.title in (None, fix.title)}
        if asked is None or not fixes:
            self._trials.report(f"No fix is known for line {place.line + 1}.", _WARNING)
            return
        texts = {
            path: text_document.source
            for text_document in self.workspace.text_documents.values()
            if (path := path_of(text_document.uri))
        }
        try:
            runner = runner_of(asked[0].started, [], sys.executable, _TRIAL_SECONDS)
        except CannotTry as problem:
            self._trials.report(f"Cannot try the fix: {problem}", _WARNING)
            return
        self._trials.begin(asked[1], list(fixes.values()), runner, texts)

    def _apply(self, path: str, tried: Trial) -> None:
        """Make the editor apply a fix, if it was tried on the present code."""
        known = self._known(path)
        fixes = () if known is None else self._fixes(known[0].record, known[1], range(1, len(known[1].lines) + 1))
        for _, fix in fixes:
            if known is not None and self._trials.of(known[1], fix) is tried:
                params = types.ApplyWorkspaceEditParams(workspace_edit(fix, self._positions), fix.title)
                self.workspace_apply_edit(params)
                return
        self._trials.report("The code has changed since this fix was tried: try it again.", _WARNING)

    async def open_record(self, number: int, file: str | None = None) -> None:
        """Show the report on a function, by its number, or on the whole program for -1.

        The record is the newest one with ``file``.
        """
        known = self._known(file) if file else None
        record = self.record if known is None else known[0].record
        if record is None:
            self.window_show_message(types.ShowMessageParams(types.MessageType.Info, "Nothing has been recorded yet."))
            return
        functions = record.functions
        name = functions[number].name if 0 <= number < len(functions) else "program"
        if self._reports is None:
            self._reports = tempfile.TemporaryDirectory(prefix="dynamo-dap-")
        path = Path(self._reports.name, f"{name} record.txt".replace("/", "_"))
        path.write_text(record_text(record, number), encoding="utf-8")
        await self.window_show_document_async(types.ShowDocumentParams(path.as_uri(), take_focus=True))

    async def write_report(self) -> str | None:
        """Write the report of the trace log that is set, or of the newest record, as a page; return its path.

        The page of a large log shows its first part until the whole log has been read.
        """
        record, mappings = self._follower.path, self._trace.mappings
        if self._trace.record is not None:
            record = self._trace.path
        if record is None:
            self.window_show_message(types.ShowMessageParams(types.MessageType.Info, "Nothing has been recorded yet."))
            return None
        if self._page is not None and self._finishing is not None:
            self._page.stop()
            await self._finishing
        self._page = ReportPage(record, mappings)
        try:
            # tlparse may take long, and a followed record must not be read from two threads.
            path = await asyncio.to_thread(self._page.begin)
        except UnreadableRecord as problem:
            self.window_show_message(types.ShowMessageParams(_WARNING, without_links(str(problem))))
            return None
        self._finishing = asyncio.create_task(asyncio.to_thread(self._page.finish))
        return str(path)

    def close(self) -> None:
        """End running commands, and remove files written for display. May be called again."""
        self._trials.close()
        if self._page is not None:
            self._page.stop()
        if self._reports is not None:
            self._reports.cleanup()
            self._reports = None


def make_server() -> RecordServer:
    """Return a server with every feature."""
    server = RecordServer()

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        server.take_options(params.initialization_options)

    @server.feature(types.INITIALIZED)
    async def initialized(_: types.InitializedParams) -> None:
        await server.begin()

    @server.feature(types.SHUTDOWN)
    def shut_down(_: None) -> None:
        server.close()

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def did_change_configuration(params: types.DidChangeConfigurationParams) -> None:
        await server.settings_changed(params.settings)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(_: types.DidOpenTextDocumentParams) -> None:
        server.publish()

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def did_change(_: types.DidChangeTextDocumentParams) -> None:
        server.publish_soon()

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(_: types.DidCloseTextDocumentParams) -> None:
        server.publish()

    _add_features(server)
    return server


def _add_features(server: RecordServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_INLAY_HINT)
    def inlay_hint(params: types.InlayHintParams) -> list[types.InlayHint]:
        return server.inlay_hints(params)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def show_hover(params: types.HoverParams) -> types.Hover | None:
        return server.hover(params)

    @server.feature(types.TEXT_DOCUMENT_CODE_LENS)
    def code_lens(params: types.CodeLensParams) -> list[types.CodeLens]:
        return server.lenses(params)

    kinds = types.CodeActionOptions([types.CodeActionKind.QuickFix])

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, kinds)
    def code_action(params: types.CodeActionParams) -> list[types.CodeAction]:
        return server.actions(params)

    @server.command(TRY_FIX)
    async def try_fix(*given: Any) -> None:  # pygls converts arguments by their annotations
        server.try_fix(given)

    @server.command(OPEN_RECORD)
    async def open_record(number: int, file: str | None = None) -> None:
        await server.open_record(number, file)

    @server.command(WRITE_REPORT)
    async def write_report() -> str | None:
        return await server.write_report()
