"""Verifies a forecast's declarations: runs the program in a new process with them.

Runs on the command's main thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dynamo_dap.protocol.requests.forecasts import (
    DeclaredFunction,
    ForecastBody,
    ForecastTrial,
    FunctionForecast,
    SizeForecast,
    VariedSize,
    Verification,
)

BREAKS = "its graph breaks with this declaration"


def verify(body: ForecastBody, run: Callable[[list[DeclaredFunction]], ForecastBody | str]) -> None:
    """Verify each declaration with which one entry serves every size, and store the result in its trial.

    ``run`` runs the program with one declaration for each of several functions.
    """
    left = {id(function): list(_promising(function)) for function in body.functions}
    while waiting := [(one, left[id(one)].pop(0)) for one in body.functions if left[id(one)]]:
        result = run([_declared(function, size, trial) for function, (size, trial) in waiting])
        for number, (function, (_, trial)) in enumerate(waiting):
            if isinstance(result, str):
                trial.verification = Verification(problem=result)
            else:
                trial.verification = result.functions[number].sizes[0].trials[0].verification
            if trial.verification is not None and trial.verification.problem is None:
                trial.verification.problem = _difference(trial, trial.verification, may_break=function.breaks)


def _promising(function: FunctionForecast) -> Iterator[tuple[SizeForecast, ForecastTrial]]:
    for size in function.sizes:
        for trial in size.trials:
            if trial.way is not None and trial.problem is None and one_entry(trial) is not None:
                yield size, trial


def _declared(function: FunctionForecast, size: SizeForecast, trial: ForecastTrial) -> DeclaredFunction:
    assert trial.way is not None
    varied = VariedSize(tuple(size.names), trial.served[0].first, trial.served[-1].last)
    return DeclaredFunction(function.name, function.path, function.line, varied, trial.way)


def verdict(trial: ForecastTrial) -> str:
    """Say whether the declaration was verified, and what it did."""
    found = trial.verification
    if found is None:
        return "not verified in a new process (--no-verify)"
    if found.problem is not None:
        return f"not verified in a new process: {found.problem}"
    calls = f", then {compiles(0)} with {', '.join(map(str, found.sizes))}" if found.sizes else ""
    return f"verified in a new process: {compiles(found.compiles)} in the program{calls}"


def _difference(trial: ForecastTrial, found: Verification, *, may_break: bool) -> str | None:
    """Return how the new process differs from the trial; None if one entry serves the same sizes in both."""
    if found.breaks and not may_break:
        return BREAKS
    again = ForecastTrial("", found.sizes, [1, *found.compiled], found.served)
    if any(found.compiled):
        size = next(size for size, count in zip(found.sizes, found.compiled, strict=True) if count)
        return f"a call with {size} compiles"
    if one_entry(again) != one_entry(trial):
        return one_entry(again) or "one entry does not serve these sizes"
    return None


def one_entry(trial: ForecastTrial) -> str | None:
    """Return a text if one entry serves all sizes, except perhaps 0 and 1; otherwise None.

    Torch treats 0 and 1 as constants unless they are declared.
    """
    others = {one.entry for one in trial.served if one.last > 1}
    if trial.breaks or any(trial.compiled[1:]) or len(others) != 1 or None in others:
        return None
    small = [one for one in trial.served if one.last <= 1 and one.entry not in others]
    if not small:
        return "one entry serves every size"
    sizes = " and ".join(str(size) for one in small for size in range(one.first, one.last + 1))
    return f"one entry serves every size but {sizes}"


def compiles(count: int) -> str:
    """Return ``no compile``, ``1 compile``, ``2 compiles``."""
    return {0: "no compile", 1: "1 compile"}.get(count, f"{count} compiles")
