"""Chooses settings of the first run that may make the second run hit the caches. It has no side effects.

``commands.cache_edits`` finds edits of the program that may help as well.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

import msgspec

from dynamo_dap.diff.caches import is_of_pass
from dynamo_dap.diff.model import JsonCaches, NotCached
from dynamo_dap.diff.sides import Run, RunCommand

_INDUCTOR = "inductor_config["
_THREADS = "cpp_runtime_thread_count"
_THREADS_VARIABLE = "OMP_NUM_THREADS"

_FREEZING = "_inductor.freezing"
_FROZEN = re.compile("freezing|frozen")

MOST = 5
"""The most changes that are tried."""
Setting = bool | int | float | str | None


@dataclass
class CacheTrial:
    """Changes to try in another run, and the compiles that they may help."""

    settings: dict[str, Setting] = field(default_factory=dict)
    """Torch's settings, in the form of the option ``torchConfig``."""
    variables: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    """The edited copies of files."""
    title: str = ""
    """What the edit does."""
    edit: list[str] = field(default_factory=list)
    """The edit as a diff."""
    is_of_both: bool = False
    """Whether the first run, which fills the caches, needs the changes, too."""
    compiles: set[tuple[str, str]] = field(default_factory=set)
    """The compiles that the changes may help, by function and id."""

    def __str__(self) -> str:
        if self.title:
            return self.title
        pairs = [*self.variables.items(), *((f"torch.{name}", value) for name, value in self.settings.items())]
        return ", ".join(f"{name}={value}" for name, value in pairs)

    def applied(self, side: RunCommand) -> RunCommand:
        """Return the command with these changes."""
        description = msgspec.structs.replace(
            side.description,
            settings={**side.description.settings, **self.settings},
            copies={**side.description.copies, **self.copies},
        )
        return RunCommand(side.python, description, {**side.variables, **self.variables}, side.folder)


def trials_of(found: JsonCaches) -> list[CacheTrial]:
    """Return the trials of settings, each for a separate run; none for a compile whose graph or inputs differ.

    The settings for different compiles are not combined: each holds for the whole run, and could make another compile
    miss.
    """
    trials: list[CacheTrial] = []
    for missed in found.not_cached:
        wanted = _wanted(missed)
        if wanted is None:
            continue
        trial = next((each for each in trials if (each.settings, each.variables) == wanted), None)
        if trial is None and len(trials) < MOST:
            trial = CacheTrial(*wanted, is_of_both=_FREEZING in wanted[0])
            trials.append(trial)
        if trial is not None:
            trial.compiles.add((missed.function, missed.compile))
    return trials


def _wanted(missed: NotCached) -> tuple[dict[str, Setting], dict[str, str]] | None:
    """Return the first run's settings and variables, if nothing else differs."""
    settings: dict[str, Setting] = {}
    variables: dict[str, str] = {}
    if missed.reasons and all(_FROZEN.search(reason) for reason in missed.reasons):
        return {_FREEZING: False}, {}
    if missed.diff or missed.reasons or not missed.parts:
        return None
    for part in missed.parts:
        if part.name == _THREADS and part.in_a is not None and part.in_a.isdigit():
            variables[_THREADS_VARIABLE] = part.in_a
        elif part.name.startswith(_INDUCTOR) and not is_of_pass(part.name) and part.in_a:
            try:
                value = ast.literal_eval(part.in_a)
            except (ValueError, SyntaxError):
                return None
            if not isinstance(value, bool | int | float | str | None):
                return None
            name = part.name.removeprefix(_INDUCTOR).removesuffix("]")
            settings[f"_inductor.{name}"] = value
        else:
            return None
    return settings, variables


def with_answers(found: JsonCaches, trial: CacheTrial, third: JsonCaches, run: Run, before: Run) -> JsonCaches:
    """Return ``found`` with the results of ``trial``.

    ``run`` is the trial's run, ``third`` has its cache misses, and ``before`` is the run without the change.
    """
    missed = {(each.function, each.compile) for each in third.not_cached}
    compiled = {
        (function.name, one.id)
        for record in run.records
        for function, one in record.compiles()
        if one.state == "compiled" and one.lookups
    }
    is_same = (run.status, run.output) == (before.status, before.output) if trial.edit else None
    answers = [
        msgspec.structs.replace(
            each,
            served_when_tried=key not in missed if key in compiled else None,
            tried=str(trial),
            edit=trial.edit,
            prints_the_same=is_same,
        )
        if (key := (each.function, each.compile)) in trial.compiles
        else each
        for each in found.not_cached
    ]
    return msgspec.structs.replace(found, not_cached=answers)
