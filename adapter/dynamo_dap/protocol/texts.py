"""Formats file names, variables and control characters for users.

It has no side effects. The program and commands use it.
"""

from __future__ import annotations

import errno
import functools
import re
from collections.abc import Iterable
from pathlib import PurePath


def short_paths(paths: Iterable[str]) -> dict[str, str]:
    """Return each path's name, with as many folders as distinguish it from the others: ``a/model.py``."""
    parts = {path: PurePath(path).parts for path in paths}
    return {path: _shortest(path, parts) for path in parts}


def _shortest(path: str, parts: dict[str, tuple[str, ...]]) -> str:
    own = parts[path]
    others = [other for key, other in parts.items() if key != path]
    for length in range(1, len(own) + 1):
        tail = own[-length:]
        if all(other[-length:] != tail for other in others):
            return "/".join(tail)
    return path


def roots_of(names: Iterable[str]) -> list[str]:
    """Return the distinct variables with which expressions begin: ``self`` for ``self.fc.weight``."""
    return list(dict.fromkeys(_ROOT.sub("", name) for name in names))


_ROOT = re.compile(r"\W.*", re.DOTALL)


_NAME = re.compile(r"\b[LG]\['([A-Za-z_]\w*)'\]")
_BUILTIN = re.compile(r"\bG\['__builtins_dict__\w*'\]\['([A-Za-z_]\w*)'\]")
_IMPORT = re.compile(r"\bG\['__import_(\w+)'\]")
_REGISTRY = re.compile(r"(?:\.__dict__\['_|\._)(?:modules|parameters|buffers)(?:'\])?\['([^']+)'\]")
_DICTIONARY = re.compile(r"\.__dict__\['([A-Za-z_]\w*)'\]")


@functools.lru_cache(maxsize=8192)
def in_user_terms(name: str) -> str:
    """Return a guard's expression in the user's terms: ``L['self']._modules['fc']`` -> ``self.fc``."""
    # Called for every guard of every compile, of which a model has thousands.
    if "G['__" in name:
        name = _BUILTIN.sub(r"\1", name)
        name = _IMPORT.sub(lambda match: match[1].replace("_dot_", "."), name)
    name = _NAME.sub(r"\1", name)
    if "modules" in name or "parameters" in name or "buffers" in name:
        name = _REGISTRY.sub(lambda match: f".{match[1]}" if match[1].isidentifier() else f"[{match[1]}]", name)
    return _DICTIONARY.sub(r".\1", name) if "__dict__" in name else name


LONGEST = 2000
"""Characters of the longest text that is shown."""


def folded_check(expression: str) -> str:
    """Return what a guard's expression checks, to count it once: equal for all marks of one tensor.

    A mark is an attribute such as ``_dynamo_dynamic_indices``.
    """
    mark = _MARK.match(expression)
    return expression if mark is None else f"marks of {mark['name']}"


_MARK = re.compile(r"hasattr\((?P<name>.+), '_dynamo_\w+'\) == False$")


_AUTOGRAD, _VIEWS = "Autograd", "ADInplaceOrView"
"""Parts of dispatch keys. An ordinary tensor has both. A tensor made in ``torch.inference_mode()`` has neither in that
mode, but the second outside of it, where an ordinary tensor might have it alone, too."""


def kinds_of_tensors(then: str, now: str) -> tuple[str, str] | None:
    """Return the kinds of the tensors that had two sets of dispatch keys; None if they are the same or uncertain."""
    kinds = [
        "an ordinary tensor" if _AUTOGRAD in keys else "an inference tensor" if _VIEWS not in keys else ""
        for keys in (then, now)
    ]
    return None if kinds[0] == kinds[1] or "" in kinds else (kinds[0], kinds[1])


def counted(number: int, word: str, plural: str | None = None) -> str:
    """Return ``1 graph``, ``2 graphs``; ``plural`` is for words that do not end with ``s`` then."""
    return f"{number} {word if number == 1 else plural or f'{word}s'}"


def shortened(text: str) -> str:
    """Return ``text``, without its middle if it is too long to read."""
    half = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[:half]} ... {text[-half:]}"


_LOW_CONTROLS = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
_DELETE = {0x7F: "\u2421"}
_HIGH_CONTROLS = dict.fromkeys((*range(128, 160), *range(8234, 8239), *range(8294, 8298)), "�")
_VISIBLE = {**_LOW_CONTROLS, **_DELETE, **_HIGH_CONTROLS}
"""Maps each control character to a visible one, so that texts keep their length."""
_IN_JSON = re.compile(
    rb"\\(?:r(?=\\n)|(?P<short>[bfr])|u(?P<code>[0-9a-fA-F]{4})|.)"
    rb"|(?P<raw>\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9])",
    re.DOTALL,
)
_SHORT = {b"b": 0x08, b"f": 0x0C, b"r": 0x0D}
_SUSPICIOUS = re.compile(rb"\\[bfru]|[\x7f\xc2\xe2]")


def with_visible_controls(text: str) -> str:
    """Return ``text`` with a visible character for each control or direction character."""
    return text.translate(_VISIBLE)


def json_with_visible_controls(content: bytes) -> bytes:
    """Return JSON with visible control characters in its texts; line ends stay."""
    return _IN_JSON.sub(_made_visible, content) if _SUSPICIOUS.search(content) else content


def _made_visible(found: re.Match[bytes]) -> bytes:
    if found["raw"] is not None:
        code = ord(found["raw"].decode())
    elif found["short"] is not None:
        code = _SHORT[found["short"]]
    elif found["code"] is not None:
        code = int(found["code"], 16)
    else:
        return found[0]
    return _VISIBLE[code].encode() if code in _VISIBLE else found[0]


_LINK = re.compile(r"\](?=\((?:https?:|command:|file:))", re.IGNORECASE)


def without_links(text: str) -> str:
    """Return ``text`` with a space in each Markdown link, so that VS Code shows its notification as text.

    A click on such a link runs a command of the editor, and the text may be the program's.
    """
    return _LINK.sub("] ", text)


PROGRAM_MARK = "program | "
"""Prefix of each line that the program printed, for assistants who also read the debugger's lines."""


def marked(text: str) -> str:
    """Return a program's output with the mark before each line."""
    return "\n".join(f"{PROGRAM_MARK}{line}" for line in text.splitlines())


def why_refused(error: OSError) -> str:
    """Return why the system refused something, and what the user can do about it."""
    named = f"{error.filename}: " if error.filename is not None else ""
    helps = "; raise the limit with 'ulimit -n'" if error.errno in (errno.EMFILE, errno.ENFILE) else ""
    return f"{named}{error.strerror or error}{helps}"


NOT_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)
"""The exceptions of Python's parser for a text that is not Python, or is nested too deep."""


def first_line_of(error: BaseException) -> str:
    """Return the first line of an exception's text; its type's name if the text is empty or ``__str__`` raises."""
    return _first_line(error) or type(error).__name__


def named_first_line_of(error: BaseException) -> str:
    """Return ``Type: first line of its text``; only the type without a text."""
    line = _first_line(error)
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def _first_line(error: BaseException) -> str:
    try:
        return (str(error).strip().splitlines() or [""])[0]
    except Exception:  # noqa: BLE001  (the program's own __str__)
        return ""
