"""An editor for tests: pygls's client, with a real server process over stdio, and the calls of a test from outside."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE
from tests.client.environments import own_command, python_option

T = TypeVar("T")
DEADLINE = 240.0


def run(program: Path, records: Path) -> None:
    """Take a record of a program, which runs in its folder."""
    subprocess.run(
        [sys.executable, "-m", "dynamo_dap", "run", *python_option(program), program.name],
        env={**os.environ, RECORDS_VARIABLE: str(records), "PYTHONUNBUFFERED": "1"},
        cwd=program.parent,
        check=True,
        timeout=DEADLINE,
        capture_output=True,
    )


class Editor:
    """One workspace in one editor; use as a context manager."""

    def __init__(self, folder: Path | None, records: Path, *, options: Any = None, settings: Any = None) -> None:
        """``folder`` is what is open, None for files alone.

        ``settings`` are what the client answers to ``workspace/configuration``; None for one that cannot.
        """
        self.folder = folder
        self.settings = settings
        self.diagnostics: dict[Path, list[types.Diagnostic]] = {}
        self.shown: list[str] = []
        """URIs that the server asked to show."""
        self.messages: list[str] = []
        """What was shown to the user in short."""
        self.answers = False
        """Whether the user clicks on the first button of what asks."""
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.applied: list[types.WorkspaceEdit] = []
        """What the server had the editor change."""
        self.progress: dict[types.ProgressToken, list[Any]] = {}
        """What the editor shows while something takes long."""
        self.refreshed: list[str] = []
        self.registered: list[str] = []
        self._versions: dict[Path, int] = {}
        self._texts: dict[Path, str] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._client = LanguageClient("tests", "1")
        self._listen()
        self.capabilities = self._begin(records, options).capabilities

    def _listen(self) -> None:
        client = self._client

        @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params: types.PublishDiagnosticsParams) -> None:
            self.diagnostics[_path(params.uri)] = list(params.diagnostics)

        @client.feature(types.WINDOW_SHOW_DOCUMENT)
        def show(params: types.ShowDocumentParams) -> types.ShowDocumentResult:
            self.shown.append(params.uri)
            return types.ShowDocumentResult(success=True)

        @client.feature(types.WINDOW_SHOW_MESSAGE)
        def message(params: types.ShowMessageParams) -> None:
            self.messages.append(params.message)

        @client.feature(types.WINDOW_SHOW_MESSAGE_REQUEST)
        async def ask(params: types.ShowMessageRequestParams) -> types.MessageActionItem | None:
            self.messages.append(params.message)
            await asyncio.to_thread(self.may_answer.wait)
            return params.actions[0] if params.actions and self.answers else None

        @client.feature(types.WORKSPACE_APPLY_EDIT)
        def apply(params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
            self.applied.append(params.edit)
            return types.ApplyWorkspaceEditResult(applied=True)

        @client.feature(types.WINDOW_WORK_DONE_PROGRESS_CREATE)
        def begin_progress(params: types.WorkDoneProgressCreateParams) -> None:
            self.progress[params.token] = []

        @client.feature(types.PROGRESS)
        def show_progress(params: types.ProgressParams) -> None:
            self.progress[params.token].append(params.value)

        @client.feature(types.CLIENT_REGISTER_CAPABILITY)
        def register(params: types.RegistrationParams) -> None:
            self.registered += [one.method for one in params.registrations]

        @client.feature(types.WORKSPACE_CONFIGURATION)
        def configuration(params: types.ConfigurationParams) -> list[Any]:
            return [self.settings for _ in params.items]

        @client.feature(types.WORKSPACE_INLAY_HINT_REFRESH)
        def refresh_hints(_: None) -> None:
            self.refreshed.append("inlay hints")

        @client.feature(types.WORKSPACE_CODE_LENS_REFRESH)
        def refresh_lenses(_: None) -> None:
            self.refreshed.append("lenses")

    def _begin(self, records: Path, options: Any) -> types.InitializeResult:
        environment = {**os.environ, RECORDS_VARIABLE: str(records)}
        self._run(self._client.start_io(*own_command(), "lsp", env=environment))
        refresh = types.InlayHintWorkspaceClientCapabilities(refresh_support=True)
        lens = types.CodeLensWorkspaceClientCapabilities(refresh_support=True)
        workspace = types.WorkspaceClientCapabilities(
            inlay_hint=refresh,
            code_lens=lens,
            configuration=self.settings is not None,
            did_change_configuration=types.DidChangeConfigurationClientCapabilities(dynamic_registration=True),
        )
        result = self._await(
            self._client.initialize_async(
                types.InitializeParams(
                    capabilities=types.ClientCapabilities(
                        workspace=workspace,
                        window=types.WindowClientCapabilities(
                            work_done_progress=True, show_message=types.ShowMessageRequestClientCapabilities()
                        ),
                        text_document=types.TextDocumentClientCapabilities(
                            code_action=types.CodeActionClientCapabilities(disabled_support=True)
                        ),
                    ),
                    workspace_folders=[types.WorkspaceFolder(one.as_uri(), one.name) for one in (self.folder,) if one],
                    initialization_options=options,
                )
            )
        )
        self._do(lambda: self._client.initialized(types.InitializedParams()))
        return result

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEADLINE)

    def _await(self, awaitable: Awaitable[T]) -> T:
        async def wait() -> T:
            return await awaitable

        return self._run(wait())

    def _do(self, action: Callable[[], None]) -> None:
        async def act() -> None:
            action()

        self._run(act())

    def __enter__(self) -> Editor:
        return self

    def __exit__(self, *raised: object) -> None:
        with contextlib.suppress(Exception):
            self._await(self._client.shutdown_async(None))
            self._do(lambda: self._client.exit(None))
        # A server that does not end by then is a failure.
        self._run(asyncio.wait_for(self._client.stop(), DEADLINE))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE)

    # -- what a user does ------------------------------------------------------------------------------------------

    def open(self, path: Path) -> None:
        """Open a file."""
        text = path.read_text(encoding="utf-8")
        self._texts[path], self._versions[path] = text, 1
        item = types.TextDocumentItem(path.as_uri(), "python", 1, text)
        self._do(lambda: self._client.text_document_did_open(types.DidOpenTextDocumentParams(item)))

    def change(self, path: Path, text: str) -> None:
        """Type: the file on disk stays as it is."""
        self._versions[path] += 1
        self._texts[path] = text
        document = types.VersionedTextDocumentIdentifier(self._versions[path], path.as_uri())
        whole = types.TextDocumentContentChangeWholeDocument(text)
        self._do(lambda: self._client.text_document_did_change(types.DidChangeTextDocumentParams(document, [whole])))

    def change_settings(self, settings: Any) -> None:
        """Change the settings."""
        if self.settings is not None:
            self.settings = settings
        self._do(
            lambda: self._client.workspace_did_change_configuration(
                types.DidChangeConfigurationParams({"dynamo": settings})
            )
        )

    def hints(self, path: Path, lines: int = 10_000) -> dict[tuple[int, int], str]:
        """Return the inlay hints of a file's first lines: by line, from 1, and column."""
        at = types.Range(types.Position(0, 0), types.Position(lines, 0))
        params = types.InlayHintParams(types.TextDocumentIdentifier(path.as_uri()), at)
        found = self._await(self._client.text_document_inlay_hint_async(params)) or []
        return {(one.position.line + 1, one.position.character): str(one.label) for one in found}

    def hover(self, path: Path, line: int, column: int) -> str | None:
        """Return the hover at a place: line from 1, column from 0."""
        params = types.HoverParams(types.TextDocumentIdentifier(path.as_uri()), types.Position(line - 1, column))
        found = self._await(self._client.text_document_hover_async(params))
        return None if found is None else found.contents.value

    def lenses(self, path: Path) -> list[types.CodeLens]:
        """Return the lenses of a file."""
        params = types.CodeLensParams(types.TextDocumentIdentifier(path.as_uri()))
        found = self._await(self._client.text_document_code_lens_async(params))
        return list(found or [])

    def actions(self, path: Path, diagnostic: types.Diagnostic) -> dict[str, types.CodeAction]:
        """Return the code actions for a diagnostic, by title."""
        context = types.CodeActionContext([diagnostic])
        params = types.CodeActionParams(types.TextDocumentIdentifier(path.as_uri()), diagnostic.range, context)
        found = self._await(self._client.text_document_code_action_async(params)) or []
        return {one.title: one if isinstance(one, types.CodeAction) else _action(one) for one in found}

    def cancel(self, token: types.ProgressToken) -> None:
        """Press the button beside a progress."""
        self._do(lambda: self._client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token)))

    def execute(self, command: types.Command) -> object:
        """Run the command of a lens, or of an action, and return what it answers."""
        params = types.ExecuteCommandParams(command.command, command.arguments)
        return self._await(self._client.workspace_execute_command_async(params))

    def apply(self, action: types.CodeAction) -> None:
        """Carry an action out, on disk."""
        assert action.edit is not None
        for uri, edits in (action.edit.changes or {}).items():
            path = _path(uri)
            path.write_text(edited(path.read_text(encoding="utf-8"), list(edits)), encoding="utf-8")

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait(self, what: str, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        end = time.monotonic() + DEADLINE
        while not is_so():
            assert time.monotonic() < end, f"waited {DEADLINE} s for {what}; diagnostics: {self.texts()}"
            time.sleep(0.02)

    def texts(self) -> dict[str, list[str]]:
        """Return all diagnostics in short."""
        return {
            path.name: [f"{one.range.start.line + 1}: {one.message.splitlines()[0]}" for one in found]
            for path, found in self.diagnostics.items()
        }

    def at(self, path: Path, line: int, code: str | None = None) -> list[types.Diagnostic]:
        """Return the diagnostics at a line, from 1."""
        found = [one for one in self.diagnostics.get(path, []) if one.range.start.line + 1 == line]
        return [one for one in found if code is None or one.code == code]


def _action(command: types.Command) -> types.CodeAction:
    """The client library takes an action that has a command for one, and its command for a text."""
    fields = ast.literal_eval(command.command)
    return types.CodeAction(command.title, command=types.Command(**fields))


def edited(text: str, edits: list[types.TextEdit]) -> str:
    """Return a text with edits made, as LSP says: all refer to the text before, insertions keep their order."""
    lines = text.split("\n")

    def offset(position: types.Position) -> int:
        line = min(position.line, len(lines) - 1)
        before = sum(len(one) + 1 for one in lines[:line])
        units = lines[line].encode("utf-16-le")[: position.character * 2]
        return before + len(units.decode("utf-16-le"))

    spans = [(offset(one.range.start), offset(one.range.end), number, one) for number, one in enumerate(edits)]
    for start, end, _, one in sorted(spans, key=lambda span: span[:3], reverse=True):
        text = text[:start] + str(one.new_text) + text[end:]
    return text


def _path(uri: str) -> Path:
    assert uri.startswith("file://"), uri
    from urllib.parse import unquote

    return Path(unquote(uri.removeprefix("file://")))
