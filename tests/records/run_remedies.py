"""Runs programs before and after their remedies, in one process, and prints facts from their records as JSON."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import torch

import dynamo_dap
from dynamo_dap.debuggee.torch_api.torch_settings import add_to_config, set_config
from dynamo_dap.records.advice.gathering import what_to_do
from dynamo_dap.records.advice.items import Item
from dynamo_dap.records.advice.settings import Setting
from tests.records.remedies import HEAD


def main(folder: Path, name: str) -> None:
    """Print for each program of the module ``name`` the facts in the record, and the effect of the remedy."""
    found = {}
    for program in importlib.import_module(name).PROGRAMS:
        before, suggested, items = _run(folder, f"{program.name}_before", HEAD + program.text, None)
        setting = next((one for one in suggested if one.text == program.setting), None)
        after = None
        if setting is not None or program.edit[0]:
            assert program.edit[0] in program.text, program.name
            text = program.text.replace(*program.edit) if program.edit[0] else program.text
            after, _, _ = _run(folder, f"{program.name}_after", HEAD + text, setting)
        found[program.name] = {
            "settings": [one.text for one in suggested],
            "advice": [line for item in items for line in item.advice],
            "titles": [item.title for item in items],
            "lines": [line for item in items for line in _lines_named(item, HEAD + program.text)],
            "before": before,
            "after": after,
        }
    sys.stdout.write(json.dumps(found) + "\n")


def _run(folder: Path, name: str, text: str, setting: Setting | None) -> tuple[Any, list[Setting], list[Item]]:
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=8), dynamo_dap.record() as made:
        undo = _make(setting)
        try:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            results = [result.tolist() for result in module.main()]
        finally:
            undo()
    record = made._recording.record
    items = what_to_do(record)
    counts = record.counts()
    numbers = {
        "graphs": counts.graphs,
        "breaks": counts.breaks,
        "recompiles": counts.recompiles,
        "limits": sum(one.limit is not None for _, one in record.compiles()),
        "results": results,
    }
    suggested = list(dict.fromkeys(one for item in items for one in item.settings))
    return numbers, suggested, items


def _lines_named(item: Item, text: str) -> list[str]:
    """Return the facts of an item, and the program's lines at its places."""
    places = [*item.callers, *item.way, *([] if item.place is None else [item.place])]
    lines = text.splitlines()
    return [*item.facts, *(lines[one.line - 1].strip() for one in places if one.line <= len(lines))]


def _make(setting: Setting | None) -> Any:
    if setting is None:
        return lambda: None
    if setting.adds is None:
        return set_config(setting.key, setting.value)
    add_to_config(setting.key, setting.adds)
    return torch._dynamo.config.ignore_logging_functions.clear


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
