"""Reads source files, cleans texts of records, and writes recorded graphs as Python.

A record has digests of lines instead of the user's code. It may come from anybody, for instance with a repository, so
this module replaces control characters before a view shows its texts.
"""

from __future__ import annotations

import linecache
import re
import stat
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from dynamo_dap.protocol.texts import counted, roots_of, short_paths
from dynamo_dap.records.model import Graph, Node, Place, Sharding

MAXIMUM_SOURCE = 4 * 1024 * 1024
"""The size in bytes of the largest source file that is read."""
_CONTROLS = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]")
"""In UTF-8: DEL, C1, and characters that change the direction of writing."""
_ESCAPES = re.compile(
    rb"\\(?:(?P<obeyed>[bfr]|u00(?:0[0-8b-fB-F]|1[0-9a-fA-F]|7[fF]|[89][0-9a-fA-F])|u20(?:2[a-eA-E]|6[6-9]))|.)",
    re.DOTALL,
)
"""Every escape in a line of JSON, from left to right; ``obeyed`` are control characters except tab and line feed."""
_RARE_ESCAPE = re.compile(rb"\\[bfru]")
_PLAIN = bytes([*range(0x20, 0x7F), 0x09, 0x0A])
_REPLACEMENT = b"\xef\xbf\xbd"


def digest_of_line(line: str) -> str:
    """Return 8 hexadecimal digits that identify a line, without trailing white space."""
    return f"{zlib.crc32(line.rstrip().encode(errors='surrogateescape')):08x}"


def without_controls(line: bytes) -> bytes:
    """Return a line of JSON with U+FFFD for each character that a terminal or an editor would obey."""
    if not may_have_controls(line):
        return line
    line = _CONTROLS.sub(_REPLACEMENT, line)
    return _ESCAPES.sub(lambda match: match[0] if match["obeyed"] is None else _REPLACEMENT, line)


def may_have_controls(text: bytes) -> bool:
    """Return whether lines of JSON may contain characters that ``without_controls`` replaces; fast for megabytes."""
    return _CONTROLS.search(text.translate(None, _PLAIN)) is not None or _RARE_ESCAPE.search(text) is not None


def sharding_text(sharding: Sharding) -> str:
    """Return FSDP's settings for a module's parameters: ``layers.0: 4 parameters (576 bytes) of 2 ranks, ...``."""
    size = f"{sharding.size / 2**20:.1f} MiB" if sharding.size >= 2**20 else f"{sharding.size} bytes"
    what = f"{counted(sharding.parameters, 'parameter')} ({size})"
    gathered = (
        "gathered by a hook before the call (not part of a graph)" if sharding.is_gathered else "not gathered yet"
    )
    after = "resharded after the call" if sharding.is_sharded_again else "unsharded until the backward pass"
    return f"{sharding.name or 'the model'}: {what} of {counted(sharding.ranks, 'rank')}, {gathered}, {after}"


def is_readable_source(path: str) -> bool:
    """Return whether a path is a regular file, not a device or pipe, of at most ``MAXIMUM_SOURCE`` bytes."""
    try:
        facts = Path(path).stat()
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(facts.st_mode) and facts.st_size <= MAXIMUM_SOURCE


def source_lines(path: str) -> list[str]:
    """Return the lines of a source file or of a notebook cell; none if it is unreadable."""
    if path not in linecache.cache and not is_readable_source(path):
        return []
    return [line.rstrip("\r\n") for line in linecache.getlines(path)]


def source_line(path: str, line: int) -> str:
    """Return one line of a source file or of a notebook cell; empty if there is none."""
    if path not in linecache.cache and not is_readable_source(path):
        return ""
    return linecache.getline(path, line).strip()


def recorded_line(sources: Mapping[str, Sequence[str]], place: Place) -> str:
    """Return a user's line if its digest is the recorded one in ``sources``; else an empty text."""
    digests = sources.get(place.path, ())
    if not 0 < place.line <= len(digests):
        return ""
    lines = source_lines(place.path)
    text = lines[place.line - 1] if place.line <= len(lines) else ""
    return (
        _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text.strip())
        if digest_of_line(text) == digests[place.line - 1]
        else ""
    )


_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def readable_graph(graph: Graph, name: str) -> str:
    """Return the graph's text, written as a function called ``name``."""
    inputs = [node for node in graph.nodes if node.operation == "placeholder"]
    lines = [f"def {_identifier(name)}({', '.join(roots_of(node.user_name or node.name for node in inputs))}):"]
    lines += [f"    # {_input_text(node)}" for node in inputs]
    names = short_paths(node.place.path for node in graph.nodes if node.place is not None)
    last = None
    for node in graph.nodes:
        if node.operation == "placeholder":
            continue
        if node.place is not None and node.place != last:
            code = source_line(node.place.path, node.place.line)
            lines += ["", f"    # {names[node.place.path]}:{node.place.line}: {code}"]
        last = node.place
        lines.append(_line(node))
    if len(graph.nodes) < graph.node_count:
        lines.append(f"    ...  # {graph.node_count - len(graph.nodes)} more nodes are not recorded")
    return "\n".join(lines) + "\n"


def _line(node: Node) -> str:
    if node.operation == "output":
        return f"    {node.expression or 'return'}"
    line = f"    {node.name} = {node.expression or node.target}"
    return f"{line}  # {node.value}" if node.value else line


def _input_text(node: Node) -> str:
    text = f"{node.user_name or node.name}: {node.value or ''}".rstrip(" :")
    return text if node.user_name is None else f"{text}, in torch's logs {node.name}"


def _identifier(name: str) -> str:
    first = name.rpartition(".")[2].partition(" ")[0]
    return first if first.isidentifier() else "graph"
