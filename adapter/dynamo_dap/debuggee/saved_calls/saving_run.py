"""Saves the call of a stop or, for ``dynamo-dap record-call``, the call that compiles a function.

Runs on the held thread, or the compiling thread.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import types
from pathlib import Path

import msgspec

from dynamo_dap.debuggee.agent.engine import CannotSaveCall
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.bytecode.line_table import qualified_name
from dynamo_dap.debuggee.torch_api.features import FeatureMissing
from dynamo_dap.debuggee.torch_api.import_hooks import when_dynamo_is_imported
from dynamo_dap.protocol.requests.saved_calls import LostValue, RecordCallBody, RecordingEnded, RecordingRun

_FOLDER = "saved-calls"


class HeldCalls:
    """Saves the call in which a thread is held."""

    def save(self, top: types.FrameType, folder: str | None, *, has_data: bool) -> RecordCallBody:
        """Save the call in which this thread is held. Raises ``CannotSaveCall``."""
        # Imported only now: few sessions save a call.
        from dynamo_dap.debuggee.history.held_calls import held_call

        try:
            held = held_call(top)
        except FeatureMissing as problem:
            raise CannotSaveCall(str(problem)) from None
        if held is None:
            raise CannotSaveCall("this thread is in no call of a compiled function")
        return _saved(held, folder, has_data=has_data)


def _saved(held: object, folder: str | None, *, has_data: bool) -> RecordCallBody:
    from dynamo_dap.debuggee.history.held_calls import HeldCall
    from dynamo_dap.debuggee.recording.function_names import name_of_call
    from dynamo_dap.debuggee.saved_calls.writing import CallWriter, CannotSave

    assert isinstance(held, HeldCall)
    name = name_of_call(held.call)
    path = Path(os.path.abspath(folder)) if folder is not None else _new_folder(name)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise CannotSaveCall(f"{path} exists and is not an empty folder")
    try:
        notes = [] if held.note is None else [held.note]
        call = CallWriter(path, with_data=has_data).write(held.call, full_graph=held.is_full_graph, notes=notes)
    except CannotSave as problem:
        raise CannotSaveCall(str(problem)) from None
    except OSError as error:
        raise CannotSaveCall(f"{path} cannot be written: {error.strerror or error}") from None
    except Exception as error:
        log_exception("saving a call")
        shutil.rmtree(path, ignore_errors=True)
        raise CannotSaveCall(f"{name} cannot be saved: {type(error).__name__}: {error}") from error
    lost = [LostValue(each.path, each.text, each.reason) for each in call.lost]
    size = sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    return RecordCallBody(str(path), name, lost, call.notes, size)


def _new_folder(name: str) -> Path:
    base, plain, number = Path.cwd() / _FOLDER, re.sub(r"\W+", "-", name).strip("-"), 1
    while (base / f"{plain}-{number}").exists():
        number += 1
    return base / f"{plain}-{number}"


def begin_recording_call(asked: RecordingRun) -> None:
    """Save the call when it is compiled, then end the program. Called before the program."""
    when_dynamo_is_imported(lambda: _observe(asked))


def _observe(asked: RecordingRun) -> None:
    # Imported only now: a program without Dynamo pays nothing.
    from dynamo_dap.debuggee.history.held_calls import compiled_call
    from dynamo_dap.debuggee.recording.function_names import name_of_compile
    from dynamo_dap.debuggee.torch_api.compiles.compile_hooks import HOOKS, CompileObserver, FrameCompile

    def _names_of(compiling: FrameCompile) -> set[str]:
        """Return the names that select a compile: its name in reports, its wrapper's name, and their last parts."""
        names = {name_of_compile(compiling), qualified_name(compiling.code)}
        return names | {name.rpartition(".")[2] for name in names}

    class Saver(CompileObserver):
        feature = "recording calls"

        count = 0

        def compile_began(self, compiling: FrameCompile) -> None:
            if asked.function is not None and asked.function not in _names_of(compiling):
                return
            held = compiled_call(compiling)
            if held is None:
                return
            self.count += 1
            if self.count == asked.compile:
                try:
                    ended = RecordingEnded(_saved(held, asked.folder, has_data=asked.has_data))
                except CannotSaveCall as problem:
                    ended = RecordingEnded(problem=str(problem))
                _end(asked, ended)

    HOOKS.want(Saver(), {CompileObserver.compile_began})


def _end(asked: RecordingRun, ended: RecordingEnded) -> None:
    """End the program after the call is saved: the rest may take days."""
    Path(asked.result).write_bytes(msgspec.json.encode(ended))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(0)
