"""The server: what the editor asks is answered from the newest record, and what is new is published to it.

Everything runs on pygls's event loop, which also looks for new records, again and again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from dynamo_dap import __version__
from dynamo_dap.language_server.actions import TRY_FIX, action_of, trial_of
from dynamo_dap.language_server.diagnostics import diagnostic_of, lines_of
from dynamo_dap.language_server.document import Document, real_path
from dynamo_dap.language_server.findings import Finding, findings_of
from dynamo_dap.language_server.fixes import fixes_of
from dynamo_dap.language_server.fixes.edits import Fix, Situation
from dynamo_dap.language_server.following import RecordFollower
from dynamo_dap.language_server.lenses import OPEN_RECORD, lenses, record_text
from dynamo_dap.language_server.positions import Positions
from dynamo_dap.language_server.trying import CannotTry, runner_of, try_fixes
from dynamo_dap.language_server.values import hover, inlay_hints, make_ready
from dynamo_dap.language_server.workspace import Documents, path_of, roots_of
from dynamo_dap.record.model import Place
from dynamo_dap.record.session import Session

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.3
_TRIAL_SECONDS = 300.0
SECTION = "dynamo"
"""Of the client's settings; ``inlayHints`` and ``diagnostics`` are ours."""


class RecordServer(LanguageServer):
    """Shows the newest record of the workspace."""

    def __init__(self) -> None:
        super().__init__("dynamo-dap", __version__)
        self._follower = RecordFollower(lambda: roots_of(self.workspace))
        self._documents = Documents()
        self._findings: dict[str, list[Finding]] = {}
        self._published: dict[str, list[types.Diagnostic]] = {}
        """By URI."""
        self._settings: dict[str, bool] = {}
        self._watching: asyncio.Task[None] | None = None
        self._proven: set[tuple[str, str]] = set()
        """Path and title of fixes that were tried and help."""
        self._reports: tempfile.TemporaryDirectory[str] | None = None
        """Texts that the client was asked to show."""

    # -- following the record --------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Watch from now on."""
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
                if self._follower.poll():
                    await self._changed()
            except Exception:  # noqa: BLE001  (a record or a file that we cannot cope with must not end the watching)
                _log.exception("following the record")
            await asyncio.sleep(_POLL_SECONDS)

    async def _changed(self) -> None:
        session = self._follower.session
        self._findings = {} if session is None else findings_of(session)
        # What was tried was tried on what the record tells.
        self._proven.clear()
        self.publish()
        if session is not None:
            make_ready(session)
        await self._refresh()

    async def _refresh(self) -> None:
        workspace = self.client_capabilities.workspace
        if workspace is None:
            return
        with contextlib.suppress(Exception):
            # A client that cannot refresh asks again in its own time.
            if workspace.inlay_hint and workspace.inlay_hint.refresh_support:
                await self.workspace_inlay_hint_refresh_async(None)
            if workspace.code_lens and workspace.code_lens.refresh_support:
                await self.workspace_code_lens_refresh_async(None)

    # -- diagnostics -----------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Tell the client of every finding, and of those that are gone."""
        found: dict[str, list[types.Diagnostic]] = {}
        for path in self._findings if self._is_on("diagnostics") else ():
            document = self.document(path)
            if document is not None and self._is_shown(document):
                found[document.uri] = [diagnostic for _, diagnostic in self._diagnostics(document)]
        for uri in [*found, *(uri for uri in self._published if uri not in found)]:
            diagnostics = found.get(uri, [])
            if self._published.get(uri, []) != diagnostics:
                self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, diagnostics))
        self._published = {uri: diagnostics for uri, diagnostics in found.items() if diagnostics}

    def _is_shown(self, document: Document) -> bool:
        """Whether it is open, or a file of the user's in the workspace: what others have is not the user's to mend."""
        opened = any(path_of(uri) == document.path for uri in self.workspace.text_documents)
        if opened or (self.session is not None and document.path in map(real_path, self.session.libraries)):
            return opened
        return any(document.path.startswith(f"{root.resolve()}/") for root in roots_of(self.workspace))

    def _diagnostics(self, document: Document) -> list[tuple[Finding, types.Diagnostic]]:
        made = [
            (finding, diagnostic_of(document, finding, self._positions, self.document_at))
            for finding in self._findings.get(document.path, ())
        ]
        return [(finding, diagnostic) for finding, diagnostic in made if diagnostic is not None]

    # -- what features need ----------------------------------------------------------------------------------------

    @property
    def session(self) -> Session | None:
        """What the newest record tells."""
        return self._follower.session

    @property
    def _positions(self) -> Positions:
        return Positions(self.workspace.position_codec)

    def document(self, path: str) -> Document | None:
        """Return a file of the record's as it is now."""
        return None if self.session is None else self._documents.of_path(self.workspace, self.session, path)

    def document_at(self, place: Place) -> Document | None:
        """Return the file of a place."""
        return self.document(place.path)

    def _asked(self, uri: str) -> tuple[Session, Document] | None:
        path = path_of(uri)
        document = self.document(path) if path else None
        return None if document is None or self.session is None else (self.session, document)

    # -- settings --------------------------------------------------------------------------------------------------

    async def read_settings(self, given: Any) -> None:
        """Take the client's settings: those it sends, else those it is asked for, else those of its beginning."""
        known = self.client_capabilities.workspace
        if known is not None and known.configuration:
            item = types.ConfigurationItem(section=SECTION)
            answers = await self.workspace_configuration_async(types.ConfigurationParams([item]))
            given = answers[0] if answers else None
        elif isinstance(given, dict):
            given = given.get(SECTION, given)
        if isinstance(given, dict):
            self._settings.update({name: value for name, value in given.items() if isinstance(value, bool)})

    def take_options(self, options: Any) -> None:
        """Take the options of ``initialize``."""
        if isinstance(options, dict):
            self._settings.update({name: value for name, value in options.items() if isinstance(value, bool)})

    async def settings_changed(self, given: Any) -> None:
        """See ``workspace/didChangeConfiguration``."""
        await self.read_settings(given)
        self.publish()
        await self._refresh()

    def _is_on(self, name: str) -> bool:
        return self._settings.get(name, True)

    # -- answers ---------------------------------------------------------------------------------------------------

    def inlay_hints(self, params: types.InlayHintParams) -> list[types.InlayHint]:
        """See ``textDocument/inlayHint``."""
        asked = self._asked(params.text_document.uri)
        if asked is None or not self._is_on("inlayHints"):
            return []
        lines = range(params.range.start.line + 1, params.range.end.line + 2)
        return inlay_hints(*asked, self._positions, lines)

    def hover(self, params: types.HoverParams) -> types.Hover | None:
        """See ``textDocument/hover``."""
        asked = self._asked(params.text_document.uri)
        if asked is None:
            return None
        line, column = self._positions.place(asked[1], params.position)
        return hover(*asked, self._positions, line, column)

    def lenses(self, params: types.CodeLensParams) -> list[types.CodeLens]:
        """See ``textDocument/codeLens``."""
        asked = self._asked(params.text_document.uri)
        return [] if asked is None else lenses(*asked, self._positions)

    def actions(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        """See ``textDocument/codeAction``."""
        asked = self._asked(params.text_document.uri)
        if asked is None:
            return []
        document = asked[1]
        wanted = range(params.range.start.line + 1, params.range.end.line + 2)
        actions = []
        for finding, diagnostic in self._diagnostics(document):
            lines = lines_of(document, finding)
            if lines is not None and lines[0] in wanted:
                situation = Situation(
                    finding, document, lines[0], self._findings[document.path], self.document_at, asked[0]
                )
                for fix in fixes_of(situation):
                    is_proven = (document.path, fix.title) in self._proven
                    actions.append(action_of(fix, diagnostic, self._positions, is_proven=is_proven))
                    if not is_proven:
                        actions.append(trial_of(fix, diagnostic, params.text_document.uri))
        return actions

    async def try_fix(self, uri: str, title: str) -> None:
        """Run the recorded program without a fix and with it; from then on it is preferred if it is proven to help."""
        asked = self._asked(uri)
        fix = None if asked is None else self._fix(asked[1], title)
        if asked is None or fix is None:
            self._say(f"There is no such fix any more: {title}")
            return
        texts = {path: one.source for one in self.workspace.text_documents.values() if (path := path_of(one.uri))}
        self._say(f"Trying: {title}. The program runs without and with the edit, on a copy.")
        try:
            runner = runner_of(asked[0].started, [], sys.executable, _TRIAL_SECONDS)
            (trial,) = await asyncio.to_thread(try_fixes, [fix], runner, texts)
        except CannotTry as problem:
            self._say(f"It cannot be tried: {problem}")
            return
        if trial.is_proven:
            self._proven.add((asked[1].path, title))
        self._say(trial.summary())

    def _fix(self, document: Document, title: str) -> Fix | None:
        findings = self._findings.get(document.path, [])
        for finding in findings:
            lines = lines_of(document, finding)
            if lines is not None and self.session is not None:
                situation = Situation(finding, document, lines[0], findings, self.document_at, self.session)
                found = next((fix for fix in fixes_of(situation) if fix.title == title), None)
                if found is not None:
                    return found
        return None

    def _say(self, text: str) -> None:
        self.window_show_message(types.ShowMessageParams(types.MessageType.Info, text))

    async def open_record(self, number: int) -> None:
        """Show the report of a function, by its number, or of the whole program with -1."""
        if self.session is None:
            self.window_show_message(types.ShowMessageParams(types.MessageType.Info, "Nothing has been recorded yet."))
            return
        functions = self.session.functions
        name = functions[number].name if 0 <= number < len(functions) else "program"
        if self._reports is None:
            self._reports = tempfile.TemporaryDirectory(prefix="dynamo-dap-")
        path = Path(self._reports.name, f"{name} record.txt".replace("/", "_"))
        path.write_text(record_text(self.session, number), encoding="utf-8")
        await self.window_show_document_async(types.ShowDocumentParams(path.as_uri(), take_focus=True))

    def close(self) -> None:
        """Clear away what was written to be shown. Harmless when called again."""
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

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def did_change_configuration(params: types.DidChangeConfigurationParams) -> None:
        await server.settings_changed(params.settings)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(_: types.DidOpenTextDocumentParams) -> None:
        server.publish()

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(_: types.DidChangeTextDocumentParams) -> None:
        server.publish()

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(_: types.DidCloseTextDocumentParams) -> None:
        server.publish()

    _add_answers(server)
    return server


def _add_answers(server: RecordServer) -> None:
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
    async def try_fix(uri: str, title: str) -> None:
        await server.try_fix(uri, title)

    @server.command(OPEN_RECORD)
    async def open_record(number: int) -> None:
        await server.open_record(number)
