"""Prints the content of saved compiles: torch's saved caches, compiled functions, precompiled and exported programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from dynamo_dap.protocol.texts import counted
from dynamo_dap.records.advice.items import at
from dynamo_dap.records.artifacts.compiled_functions import CompiledFile
from dynamo_dap.records.artifacts.exported_programs import ExportedProgram
from dynamo_dap.records.artifacts.precompiled_programs import PrecompiledCache, PrecompiledProgram
from dynamo_dap.records.artifacts.saved_caches import SavedEntry

_SHOWN = 40
_WEIGHTS = 8
_OPERATIONS = 12


def print_saved_cache(path: Path, entries: Sequence[SavedEntry], console: Console) -> None:
    """Print the entries of a file of ``torch.compiler.save_cache_artifacts``."""

    def show(text: str) -> None:
        console.print(text, markup=False, highlight=False)

    size = sum(each.size for each in entries)
    show(f"{path}: saved caches of torch, {counted(len(entries), 'artifact')}, {size / 1024:.0f} KiB")
    _print_entries(entries, console)
    show("\nA call hits an entry only if it has the same key. To compare keys: dynamo-dap diff --caches")


def _print_entries(entries: Sequence[SavedEntry], console: Console) -> None:
    def show(text: str) -> None:
        console.print(text, markup=False, highlight=False)

    for each in entries[:_SHOWN]:
        show(f"\n{each.cache}  {each.key}  {each.size / 1024:.0f} KiB")
        for place, function in each.lines:
            show(f"  {at(place)} in {function}")
        if each.inputs is not None:
            show(f"  inputs: {each.inputs}")
        if each.guards in ("", "True"):
            show("  accepts: the sizes above")
        elif each.guards is not None:
            show(f"  accepts: {each.guards}")
            show("  t0, t1, … are the sizes that vary, in the order of the inputs")
    if len(entries) > _SHOWN:
        show(f"\nand {counted(len(entries) - _SHOWN, 'other')}")


def print_precompiled_cache(path: Path, cache: PrecompiledCache, console: Console) -> None:
    """Print the cache of a program of ``torch.compiler.precompile``."""
    console.print(f"{path}: the cache of a precompiled program, {cache.backend}", markup=False, highlight=False)
    console.print(f"It loads only with the program whose SHA-256 is {cache.code_hash}", markup=False, highlight=False)
    if not cache.entries:
        console.print("It holds no kernels.", markup=False, highlight=False)
    _print_entries(cache.entries, console)


def print_precompiled(path: Path, program: PrecompiledProgram, console: Console) -> None:
    """Print a program of ``torch.compiler.precompile``."""

    def show(text: str) -> None:
        console.print(text, markup=False, highlight=False)

    show(f"{path}: a program of torch.compiler.precompile, {program.backend}")
    show("\nAccepts")
    if program.modules:
        show(f"  {counted(program.modules, 'module')} with the parameters and buffers below")
    for number, text in enumerate(program.inputs, 1):
        show(f"  input {number}: {text or 'not a tensor: it always uses the value of the captured call'}")
    if program.backend == "inductor":
        show("  It refuses other sizes, types, devices and strides.")
    else:
        show("  It refuses other sizes, types and devices.")
    show("  Branches are those of the captured call: no guard checks them.")
    if program.weights:
        show(f"\nNeeds {counted(len(program.weights), 'parameter')} and buffers; their values may differ")
    for name, text in program.weights.items():
        show(f"  {name}: {text}{', gets a gradient' if name in program.gradients else ''}")


def print_compiled(path: Path, compiled: CompiledFile, console: Console) -> None:
    """Print the function of a file of ``save_compiled_function``."""

    def show(text: str) -> None:
        console.print(text, markup=False, highlight=False)

    show(f"{path}: the compiled function {compiled.function} ({at(compiled.place)}), {compiled.backend}")
    for module, first, last in compiled.sources:
        show(f"  traced {module}: lines {first} to {last}")
    show("\nWas compiled with")
    for name, text in compiled.inputs.items():
        show(f"  {name}: {text}")
    show("\nRefuses a call unless")
    for text, place in [*compiled.tensors, *compiled.guards]:
        show(f"  {text}{'' if place is None else f'  {at(place)}'}")
    if compiled.has_global_state:
        show("  and torch's global state is unchanged (grad mode, autocast, threads, determinism)")
    versions = ", ".join(f"{name} {version}" for name, version in compiled.versions.items())
    show(f"\nLoads only with {versions}")


def print_exported(path: Path, programs: Sequence[ExportedProgram], console: Console) -> None:
    """Print the programs of a file of ``torch.export.save``."""

    def show(text: str) -> None:
        console.print(text, markup=False, highlight=False)

    for program in programs:
        total = sum(program.operations.values())
        show(f"{path}: the exported program {program.name}, torch {program.torch}, {counted(total, 'operation')}")
        show("\nAccepts")
        for name, text in program.inputs.items():
            show(f"  {name}: {text}")
        for name, text in program.ranges.items():
            show(f"  where {name} is {text}")
        for guard in program.guards:
            show(f"  and {guard}")
        show("  It raises an error for other sizes, and for other values of constants.")
        show(f"\nHolds {counted(len(program.weights), 'weight')} (parameters and buffers)")
        for name, text in list(program.weights.items())[:_WEIGHTS]:
            show(f"  {name}: {text}")
        if len(program.weights) > _WEIGHTS:
            show(f"  and {len(program.weights) - _WEIGHTS} more")
        show("\nComputes")
        for name, count in program.operations.most_common(_OPERATIONS):
            show(f"  {name}: {count}")
        if len(program.operations) > _OPERATIONS:
            show(f"  and {counted(len(program.operations) - _OPERATIONS, 'other operation')}")
