"""Finds torch's trace logs in a folder, and reads one as a record. Runs in any process, on one thread per log.

Paths of the machine that wrote a log are mapped to local files. A local file counts as the same source only if it
contains every line that the log quotes. Only then does the record get the digests of its lines, by which editors mark
them.
"""

from __future__ import annotations

import contextlib
import gc
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath

from dynamo_dap.protocol.requests.ranks import Rank
from dynamo_dap.protocol.user_files import open_regular, read_source
from dynamo_dap.records.events import VERSION, Record, SourceRead, Started
from dynamo_dap.records.file import UnreadableRecord, read_record
from dynamo_dap.records.texts import digest_of_line, is_readable_source
from dynamo_dap.trace_logs.compiles import DETAILS_BOUND, UNWANTED, Translation
from dynamo_dap.trace_logs.entries import Entry, LogReader

_NAME = re.compile(r"dedicated_log_torch_trace_(?:rank_(?P<rank>\d+)_)?\w*\.log")
_FIRST_ENTRY = re.compile(rb"[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ [^\]\n]*\] \{")
_LOGS = 10_000
Mappings = Sequence[tuple[str, str]]
"""Folders of the machine that wrote a log, each with the corresponding local folder."""


def is_trace(path: Path) -> bool:
    """Return whether a path is a folder with torch's trace logs, or one such log."""
    if path.is_dir():
        return bool(logs_in(path))
    try:
        with open_regular(path) as file:
            return _FIRST_ENTRY.match(file.read(4096).lstrip(b"\n")) is not None
    except OSError:
        return False


def logs_in(path: Path) -> list[Path]:
    """Return a folder's logs, by rank and name; the path itself if it is a log."""
    if not path.is_dir():
        return [path]
    found = [each for each in path.iterdir() if _NAME.fullmatch(each.name) and each.is_file()]
    if not found:
        found = [each for each in path.glob("*.log") if each.is_file() and is_trace(each)]
    return sorted(found[:_LOGS], key=lambda each: (_rank_in_name(each) or 0, each.name))


def _rank_in_name(log: Path) -> int | None:
    match = _NAME.fullmatch(log.name)
    return int(match["rank"]) if match is not None and match["rank"] is not None else None


def chosen_log(path: Path) -> Path:
    """Return the log to report on: that of the lowest rank, or the largest if no rank is known.

    Raises:
        UnreadableRecord: the folder has no log.
    """
    logs = logs_in(path)
    if not logs:
        raise UnreadableRecord(f"{path} has no trace log of torch")
    if _rank_in_name(logs[0]) is not None:
        return logs[0]
    return max(logs, key=lambda each: each.stat().st_size)


def read_any(path: Path, mappings: Mappings = ()) -> Record:
    """Return the record of a record file, of a trace log, or of a folder of trace logs.

    Raises:
        UnreadableRecord: ``path`` is none of these, or cannot be read.
    """
    return read_trace(path, mappings) if is_trace(path) else read_record(path)


class TraceReader:
    """Reads one log into a record, in one go or in pieces. Runs on one thread."""

    def __init__(
        self,
        path: Path,
        mappings: Mappings = (),
        details_bound: int = DETAILS_BOUND,
        observe: Callable[[Entry, Translation], None] | None = None,
    ) -> None:
        """Read the log ``path``, or the chosen log of this folder.

        ``observe`` gets each entry after its event was added to the record.

        Raises:
            UnreadableRecord: the folder has no log.
        """
        self.log = chosen_log(path)
        self.record = Record()
        self._log_reader = LogReader(self.log, UNWANTED)
        self._translation = Translation(self.record, PathMap(mappings), details_bound)
        self._observe = observe
        self._entries = iter(self._log_reader)
        self._process = 0

    def progress(self) -> str:
        """Return which part has been read: ``43% of 2.1 GB``."""
        size = self.log.stat().st_size
        share = min(99, 100 * self._log_reader.position // max(1, size))
        return f"{share}% of {size / 1e9:.1f} GB" if size >= 1e9 else f"{share}% of {size / 1e6:.1f} MB"

    def read(self, seconds: float = math.inf) -> bool:
        """Continue to read for about ``seconds``; return whether the end is reached.

        Raises:
            UnreadableRecord: the file cannot be read, or is not a log.
        """
        end = time.monotonic() + seconds
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            for entry in self._entries:
                self._process = self._process or entry.process
                self._translation.take(entry)
                if self._observe is not None:
                    self._observe(entry, self._translation)
                if time.monotonic() > end:
                    self._complete()
                    return False
        except OSError as error:
            raise UnreadableRecord(f"cannot read {self.log}: {error.strerror or error}") from None
        finally:
            if was_enabled:
                gc.enable()
        if not self._log_reader.entries:
            raise UnreadableRecord(f"{self.log} is not a trace log of torch")
        self._complete()
        return True

    def _complete(self) -> None:
        """Add facts to the record that depend on all entries so far: the program, and the lines unchanged here."""
        translation = self._translation
        self.record.unreadable_lines = self._log_reader.unreadable + translation.unreadable
        rank = translation.rank if translation.rank is not None else _rank_in_name(self.log)
        self.record.apply(_started(self.log, translation, self._process, rank))
        self.record.sources.clear()
        for event in _sources(translation.quoted):
            self.record.apply(event)


def read_trace(
    path: Path,
    mappings: Mappings = (),
    details_bound: int = DETAILS_BOUND,
    observe: Callable[[Entry, Translation], None] | None = None,
) -> Record:
    """Return the record of a trace log, or of a folder's chosen one; see ``TraceReader``.

    Raises:
        UnreadableRecord: the folder has no log, or the log cannot be read.
    """
    reader = TraceReader(path, mappings, details_bound, observe)
    reader.read()
    return reader.record


def _started(log: Path, translation: Translation, process: int, rank: int | None) -> Started:
    began = min((one.began for _, one in translation.record.compiles() if one.began), default=0.0)
    program = [translation.outermost] if translation.outermost else []
    return Started(
        VERSION,
        began,
        process,
        program,
        "",
        "",
        torch=translation.torch,
        log=str(log),
        rank=None if rank is None else Rank(rank),
    )


def read_ranks(path: Path, mappings: Mappings = ()) -> dict[int, Record]:
    """Return the records of all ranks in a folder of trace logs.

    Raises:
        UnreadableRecord: the folder has no log of a rank.
    """
    return {rank: read_trace(log, mappings) for rank, log in sorted(logs_of_ranks(path).items())}


def logs_of_ranks(path: Path) -> dict[int, Path]:
    """Return the most complete log of each rank in a folder of trace logs.

    Raises:
        UnreadableRecord: the folder has no log of a rank.
    """
    folder = path if path.is_dir() else path.parent
    chosen: dict[int, Path] = {}
    for log in logs_in(folder):
        rank = _rank_in_name(log)
        if rank is not None and (rank not in chosen or log.stat().st_size > chosen[rank].stat().st_size):
            chosen[rank] = log
    if not chosen:
        raise UnreadableRecord(f"{folder} has no log of a rank of a distributed job")
    return chosen


class WrongMapping(Exception):
    """A mapping of paths is not REMOTE=LOCAL; the message is for the user."""


def mappings_of(given: Iterable[str]) -> Mappings:
    """Return the folders that ``REMOTE=LOCAL`` name.

    Raises:
        WrongMapping: one of them is not of this form, or there is no folder LOCAL.
    """
    found = []
    for text in given:
        remote, mark, local = text.partition("=")
        if not mark or not remote or not local:
            raise WrongMapping(f"--map takes REMOTE=LOCAL; got {text}")
        if not Path(local).is_dir():
            raise WrongMapping(f"--map: the folder {local} does not exist here")
        found.append((remote, str(Path(local).resolve())))
    return found


class PathMap:
    """Maps paths of the machine that wrote a log to local paths. Caches its answers."""

    def __init__(self, mappings: Mappings) -> None:
        # The most specific folder wins.
        self._mappings = sorted(mappings, key=lambda each: -len(each[0]))
        self._known: dict[str, str] = {}

    def __call__(self, path: str) -> str:
        """Return the local path; the path itself if no mapping fits."""
        known = self._known.get(path)
        if known is None:
            known = self._known[path] = self._found(path)
        return known

    def _found(self, path: str) -> str:
        for remote, local in self._mappings:
            pure: type[PurePath] = PureWindowsPath if "\\" in remote else PurePosixPath
            with contextlib.suppress(ValueError):
                rest = pure(path).relative_to(remote)
                # A log may come from anybody: it must not lead out of the folder.
                if ".." not in rest.parts:
                    return str(Path(local, *rest.parts))
        return path


def _lines_now(path: str) -> list[str]:
    """Return the lines of a local file; none if it cannot be read as Python source."""
    if not is_readable_source(path):
        return []
    try:
        return read_source(path).split("\n")
    except (OSError, SyntaxError, UnicodeDecodeError, LookupError):
        return []


def _sources(quoted: Mapping[str, Mapping[int, str]]) -> Iterable[SourceRead]:
    for path, lines in quoted.items():
        here = _lines_now(path)
        if here and all(0 < line <= len(here) and here[line - 1].strip() == text for line, text in lines.items()):
            yield SourceRead(path, "".join(map(digest_of_line, here)), "site-packages" in path)
