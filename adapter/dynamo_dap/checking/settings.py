"""Reads a check's limits, from the command line and ``pyproject.toml``, and its baseline file.

Runs on the command's main thread, once at its beginning and once at its end.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct, field

from dynamo_dap.checking.findings import SKIPPED, Finding, Found, Part, Totals
from dynamo_dap.protocol.texts import counted
from dynamo_dap.protocol.user_files import read_regular
from dynamo_dap.records.advice.items import Kind

_VERSION = 1


class WrongSettings(Exception):
    """An argument or file is unusable; the message is for the user."""


class Limits(Struct, rename="kebab", forbid_unknown_fields=True, frozen=True):
    """Upper limits; None for no limit."""

    max_breaks: int | None = None
    max_recompiles: int | None = None
    max_graphs: int | None = None
    max_compile_seconds: float | None = None

    def exceeded_by(self, totals: Totals) -> Iterator[tuple[str, frozenset[str]]]:
        """Yield a sentence for each limit that ``totals`` exceed, with the kinds of findings that cause it."""
        for found, limit, word, kinds in (
            (totals.breaks, self.max_breaks, "graph break", {Kind.BREAK.value}),
            (totals.recompiles, self.max_recompiles, "recompile", {Kind.CHANGE.value, Kind.LIMIT.value}),
            (totals.graphs, self.max_graphs, "graph", {Kind.BREAK.value, Kind.CHANGE.value}),
        ):
            if limit is not None and found > limit:
                yield f"{counted(found, word)}; the limit is {limit}", frozenset(kinds)
        seconds = self.max_compile_seconds
        if seconds is not None and totals.compile_seconds > seconds:
            yield f"{totals.compile_seconds:.1f} s of compiling; the limit is {seconds:g} s", frozenset()


class Settings(Limits, rename="kebab", forbid_unknown_fields=True, frozen=True):
    """``[tool.dynamo-dap]`` of a ``pyproject.toml``, overridden by the command line's options."""

    no_skips: bool = False
    """Whether a function that Dynamo does not trace is a problem."""
    baseline: str | None = None
    """The baseline file, relative to the folder of ``pyproject.toml`` or of the check."""
    functions: dict[str, Limits] = field(default_factory=dict)
    """Limits for functions by name patterns: ``"Model.*"``."""

    def complete(self) -> Settings:
        """Allow no breaks and no recompiles if there is neither a limit nor a baseline."""
        return msgspec.structs.replace(self, max_breaks=0, max_recompiles=0) if self == Settings() else self


def settings_of_project(folder: Path) -> Settings:
    """Return the settings of the nearest ``pyproject.toml`` in or above ``folder``; the defaults if there is none.

    Raises:
        WrongSettings: the file cannot be read, or has unknown settings.
    """
    file = next(
        (each / "pyproject.toml" for each in (folder, *folder.parents) if (each / "pyproject.toml").exists()), None
    )
    if file is None:
        return Settings()
    try:
        read = msgspec.toml.decode(read_regular(file))
    except (OSError, msgspec.DecodeError) as problem:
        raise WrongSettings(f"cannot read {file}: {problem}") from None
    tools = read.get("tool", {})
    given = tools.get("dynamo-dap", {}) if isinstance(tools, dict) else {}
    if not isinstance(given, dict):
        raise WrongSettings(f"tool.dynamo-dap of {file} is not a table")
    _refuse_unknown(given, Settings, f"[tool.dynamo-dap] of {file}")
    for pattern, limits in given.get("functions", {}).items() if isinstance(given.get("functions"), dict) else ():
        if isinstance(limits, dict):
            _refuse_unknown(limits, Limits, f'[tool.dynamo-dap.functions."{pattern}"] of {file}')
    try:
        settings = msgspec.convert(given, Settings)
    except msgspec.ValidationError as problem:
        raise WrongSettings(f"[tool.dynamo-dap] of {file}: {problem}") from None
    if settings.baseline is not None:
        settings = msgspec.structs.replace(settings, baseline=str(_inside(file, settings.baseline)))
    return settings


def _inside(file: Path, baseline: str) -> Path:
    """Return a baseline's path; refuse one outside the project, whose settings must not make us write other files."""
    path = file.parent / baseline
    try:
        is_inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(file.parent))
    except (OSError, ValueError) as problem:
        raise WrongSettings(f"{file}: the baseline {baseline!r} is not a path: {problem}") from None
    if not is_inside:
        raise WrongSettings(f"{file}: the baseline {baseline!r} is outside the project; use --baseline for such a file")
    return path


def _refuse_unknown(given: object, known: type[Settings] | type[Limits], where: str) -> None:
    names = [each.encode_name for each in msgspec.structs.fields(known)]
    for name in given if isinstance(given, dict) else ():
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            meant = f"; did you mean {near[0]}?" if near else f"; the settings are: {', '.join(names)}"
            raise WrongSettings(f"{where} has no setting {name}{meant}")


# -- the baseline ------------------------------------------------------------------------------------------------------


class Known(Struct, rename="camel", frozen=True, omit_defaults=True):
    """An accepted finding."""

    kind: str
    function: str
    reason: str
    count: int = 1


class Baseline(Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    """The accepted findings, in a file that is committed with the program."""

    findings: list[Known]
    """A required field: a file with an empty JSON object is not a baseline."""
    version: int = _VERSION


def read_baseline(file: Path) -> Baseline:
    """Return the baseline in ``file``; an empty one if the file does not exist yet.

    Raises:
        WrongSettings: the file is not a readable baseline.
    """
    try:
        content = read_regular(file)
        baseline = msgspec.json.decode(content, type=Baseline)
    except FileNotFoundError:
        return Baseline([])
    except (OSError, msgspec.DecodeError) as problem:
        raise WrongSettings(f"cannot read the baseline {file}: {problem}") from None
    if baseline.version > _VERSION:
        raise WrongSettings(f"the baseline {file} was written by a newer dynamo-dap")
    return baseline


def write_baseline(file: Path, found: Found) -> None:
    """Write the accepted findings, in an order that keeps diffs small.

    Raises:
        WrongSettings: the file cannot be written.
    """
    known = [Known(*key, count) for key, count in sorted(found.counts().items())]
    try:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(Baseline(findings=known)), indent=2) + b"\n")
    except OSError as problem:
        raise WrongSettings(f"cannot write the baseline {file}: {problem.strerror or problem}") from None


# -- the verdict -------------------------------------------------------------------------------------------------------


class Verdict(Struct, frozen=True):
    """The result of a check."""

    new: list[Finding]
    """The problems to report: not in the baseline, or above a limit."""
    problems: list[str]
    """The exceeded limits, one sentence each."""
    known: int
    """The number of findings that the baseline accepts."""
    gone: list[Known]
    """The baseline's findings that no longer occur."""

    @property
    def is_good(self) -> bool:
        """Whether there is nothing to report."""
        return not self.new and not self.problems


def judge(found: Found, settings: Settings) -> Verdict:
    """Compare the findings with the limits and the baseline.

    Raises:
        WrongSettings: the baseline cannot be read.
    """
    parts: list[tuple[str, Limits, Part]] = [("", settings, found.program)]
    for pattern, limits in settings.functions.items():
        parts += [(f"{name}: ", limits, part) for name, part in found.functions_like(pattern).items()]
    problems, blamed = [], set()
    for prefix, limits, part in parts:
        for sentence, kinds in limits.exceeded_by(part.totals):
            problems.append(prefix + sentence)
            blamed |= {one.key for one in found.findings if one.kind in kinds and part.has(one)}
    accepted = {} if settings.baseline is None else _accepted(Path(settings.baseline))
    counts = found.counts()
    more = {key for key, count in counts.items() if count > accepted.get(key, 0)}
    refused = {
        Kind.FAILED.value,
        *([SKIPPED] if settings.no_skips else []),
        *([] if settings.baseline is None else _BASELINED),
    }
    new = [one for one in found.findings if one.key in blamed or (one.key in more and one.kind in refused)]
    gone = [Known(*key, count) for key, count in accepted.items() if key not in counts]
    return Verdict(new, problems, sum(key in accepted for key in counts), gone)


def _accepted(file: Path) -> dict[tuple[str, str, str], int]:
    return {(one.kind, one.function, one.reason): one.count for one in read_baseline(file).findings}


_BASELINED = frozenset(kind.value for kind in Kind)
"""The kinds that a baseline restricts; skipped functions are restricted only by ``no_skips``."""
