"""Names and numbers that server and debugged program share are in ``protocol/requests/contract.py`` only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from dynamo_dap.protocol.requests import contract
from dynamo_dap.server.programs.debuggee import OLDEST_SUPPORTED
from tests.structure.sources import ADAPTER, ROOT, adapter_modules

_CONTRACT = ADAPTER / "dynamo_dap" / "protocol" / "requests" / "contract.py"
_OURS = re.compile(r"\bdynamo[A-Z]\w*|\bDYNAMO_DAP_[A-Z_]+")
_WORDS = {one for one in (*contract.BREAKPOINT_MODES, *contract.EXCEPTION_FILTERS) if "-" in one}
"""Names that have no other meaning if they are a whole string."""


def _written_out(tree: ast.Module) -> Iterator[str]:
    """Yield our own names in strings, and numbers of failures; comments may have them."""
    standalone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in standalone:
            names = [node.value] if node.value in _WORDS else _OURS.findall(node.value)
            yield from (f"{node.lineno}: {name}" for name in names)
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            keywords = {"error_id", "id"} if called == "ErrorMessage" else {"error_id"}
            for keyword in node.keywords:
                if keyword.arg in keywords and isinstance(keyword.value, ast.Constant):
                    yield f"{node.lineno}: the number of a failure"


def test_private_names_and_numbers_are_written_once() -> None:
    """The numbers in the language server, and in fixes, are other codes: those of diagnostics."""
    wrong = [
        f"{module.path.relative_to(ADAPTER)}:{found}"
        for module in adapter_modules()
        if module.path != _CONTRACT and module.name.split(".")[1:2] not in (["fixes"], ["language_server"])
        for found in _written_out(module.tree)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "text",
    [
        "x('run-time')",
        "x('dynamoAuthorize')",
        "x(f'{y} is dynamoEnding')",
        "x = 'DYNAMO_DAP_LAUNCH'",
        "refuse(error_id=101)",
    ],
)
def test_the_check_sees_one_that_is_written_out(text: str) -> None:
    assert len(list(_written_out(ast.parse(text)))) == 1
    assert list(_written_out(ast.parse('"""dynamoAuthorize"""\nrefuse(error_id=ErrorId.CANCELLED)'))) == []


def test_one_oldest_torch_everywhere() -> None:
    oldest = ".".join(map(str, OLDEST_SUPPORTED))
    assert f'torch = ["torch>={oldest}"]' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f"torch {oldest} and newer on Linux" in (ROOT / "README.md").read_text(encoding="utf-8")
