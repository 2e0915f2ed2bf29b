"""Remembers which content a user agreed to run.

Saved calls and records may come from other people. The user sees the code first, and agrees once per content. Runs on
the main thread of a command, or of the process that replays a call; stateless.
"""

from __future__ import annotations

import contextlib
import sys
import unicodedata
from collections.abc import Iterable

from dynamo_dap.protocol.access.private_files import read_private, state_folder, write_private

_AGREED = "agreed"


def visible(text: str) -> str:
    """Return ``text`` with escapes for control characters and for characters that change the text's direction."""
    return "".join(
        each
        if each == "\t" or not unicodedata.category(each).startswith(("Cc", "Cf", "Cs", "Zl", "Zp"))
        else _escape(each)
        for each in text
    )


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def has_agreed(digest: str, names: Iterable[str] = ()) -> bool:
    """Return whether the user has agreed to run this content with these names, which the allow list lacks."""
    content = None
    with contextlib.suppress(OSError):
        content = read_private(state_folder() / _AGREED / digest)
    return content is not None and set(names) <= set(content.decode(errors="replace").splitlines()[1:])


def agree_to(digest: str, title: str, names: Iterable[str] = ()) -> None:
    """Remember that the user agrees to run this content with these names.

    Raises:
        OSError: it cannot be stored.
    """
    text = "\n".join([visible(title), *names, ""])
    write_private(state_folder() / _AGREED / digest, text.encode(errors="surrogateescape"), replaces=True)


def ask(shown: str, question: str) -> bool | None:
    """Show the code, and ask whether to run it; return None without a terminal to ask on."""
    sys.stdout.write(f"{shown}\n\n{question}\n")
    sys.stdout.flush()
    if not sys.stdin.isatty():
        return None
    sys.stdout.write("Run it? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
