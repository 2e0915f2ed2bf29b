"""Tries fixes for the editor's user, one at a time, with progress; keeps results until the code changes.

Runs on the language server's event loop; a worker thread waits for the program's processes.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from dynamo_dap.fixes.document import Document
from dynamo_dap.fixes.edits import Fix
from dynamo_dap.fixes.recorded_program import CannotTry
from dynamo_dap.fixes.trial import Cancelled, Runner, Trial, try_fixes
from dynamo_dap.protocol.texts import without_links

APPLY = "Apply Fix"
_Key = tuple[str, str, str]


class Trials:
    """Results of trials. Lives as long as the server."""

    def __init__(
        self, client: LanguageServer, apply: Callable[[str, Trial], None], changed: Callable[[], None]
    ) -> None:
        """Use ``apply`` to let the editor apply a tried fix to a file, unless the file has changed since the trial.

        Trials call ``changed`` when there are new results.
        """
        self._client = client
        self._apply = apply
        self._changed = changed
        self._tried: dict[_Key, Trial] = {}
        self._running: asyncio.Task[None] | None = None
        self._is_closed = threading.Event()
        self._numbers = itertools.count(1)

    @property
    def has_any(self) -> bool:
        """Whether anything was tried since the last ``forget``."""
        return bool(self._tried)

    def forget(self) -> None:
        """Forget every trial: they were made against an older record."""
        self._tried.clear()

    def close(self) -> None:
        """End the running trials, without a report. May be called again."""
        self._is_closed.set()

    def of(self, document: Document, fix: Fix) -> Trial | None:
        """Return a fix's result, if it was tried on the present code."""
        return self._tried.get(_key(document, fix))

    def further(self, document: Document, fix: Fix) -> list[Fix]:
        """Return the tried fixes that extend a fix by further checks, if all lines are as they were."""
        tried = [one.fix for (path, _, meaning), one in self._tried.items() if (path, meaning) == _code(document)]
        begin = f"{fix.title}, and "
        return [
            one
            for one in tried
            if one.title.startswith(begin) and all(edit.document.lines == document.lines for edit in one.edits)
        ]

    def begin(self, document: Document, fixes: Sequence[Fix], runner: Runner, texts: Mapping[str, str]) -> None:
        """Try fixes for one place; show the user progress and results."""
        if self._running is not None and not self._running.done():
            self.report("Another fix is being tried: wait for it, or cancel it.", types.MessageType.Warning)
            return
        self._running = asyncio.get_running_loop().create_task(self._try(document, fixes, runner, texts))

    def report(self, text: str, kind: types.MessageType = types.MessageType.Info) -> None:
        """Show a message."""
        self._client.window_show_message(types.ShowMessageParams(kind, without_links(text)))

    async def _try(self, document: Document, fixes: Sequence[Fix], runner: Runner, texts: Mapping[str, str]) -> None:
        progress = _Progress(self._client, f"dynamo-dap/try/{next(self._numbers)}")
        loop = asyncio.get_running_loop()
        await progress.begin(f"Trying: {fixes[0].title}" if len(fixes) == 1 else f"Trying {len(fixes)} fixes")

        def run_reports(how: str) -> None:
            loop.call_soon_threadsafe(progress.report, f"{runner.command} runs {how}, on a copy")

        def is_cancelled() -> bool:
            return progress.is_cancelled.is_set() or self._is_closed.is_set()

        reported = replace(runner, report=run_reports, is_cancelled=is_cancelled)
        try:
            trials = await asyncio.to_thread(try_fixes, fixes, reported, texts)
        except asyncio.CancelledError:
            # The event loop ends with the server.
            self._is_closed.set()
            raise
        except Cancelled:
            return
        except CannotTry as problem:
            self.report(f"Cannot try the fix: {problem}", types.MessageType.Warning)
            return
        finally:
            # Without an editor, pygls would report the failed message, then the failed report, endlessly.
            if not self._is_closed.is_set():
                progress.end()
        self._tried.update({_key(document, trial.fix): trial for trial in trials})
        self._changed()
        for trial in trials:
            self._report(document, trial)

    def _report(self, document: Document, trial: Trial) -> None:
        """Report a trial's result; a click applies a proven fix."""
        text = without_links(f"{trial.fix.title}: {trial.summary()}")
        window = self._client.client_capabilities.window
        if not trial.is_proven or window is None or window.show_message is None:
            self.report(text, types.MessageType.Info if trial.is_proven else types.MessageType.Warning)
            return

        def answered(chosen: types.MessageActionItem | None) -> None:
            if chosen is not None:
                self._apply(document.path, trial)

        # The answer may come late or never, so do not wait for it.
        asked = types.ShowMessageRequestParams(types.MessageType.Info, text, [types.MessageActionItem(APPLY)])
        self._client.window_show_message_request(asked, answered)


def _key(document: Document, fix: Fix) -> _Key:
    """Return the key of a trial: the file, the fix, and the code without comments and layout."""
    path, meaning = _code(document)
    return path, fix.title, meaning


def _code(document: Document) -> tuple[str, str]:
    return document.path, document.meaning


class _Progress:
    """Shows progress in the editor, if it can, while a program runs."""

    def __init__(self, client: LanguageServer, token: str) -> None:
        self._client = client
        self._token = token
        self._is_shown = False
        self.is_cancelled = threading.Event()

    async def begin(self, title: str) -> None:
        title = without_links(title)
        window = self._client.client_capabilities.window
        if window is None or not window.work_done_progress:
            self._client.window_show_message(types.ShowMessageParams(types.MessageType.Info, title))
            return
        progress = self._client.work_done_progress
        await progress.create_async(self._token)
        progress.begin(self._token, types.WorkDoneProgressBegin(title, cancellable=True))
        progress.tokens[self._token].add_done_callback(lambda _: self.is_cancelled.set())
        self._is_shown = True

    def report(self, text: str) -> None:
        if self._is_shown:
            report = types.WorkDoneProgressReport(message=without_links(text))
            self._client.work_done_progress.report(self._token, report)

    def end(self) -> None:
        if self._is_shown:
            self._is_shown = False
            self._client.work_done_progress.end(self._token, types.WorkDoneProgressEnd())
