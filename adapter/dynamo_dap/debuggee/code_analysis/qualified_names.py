"""The qualified name of a code object: ``Model.forward``, ``outer.<locals>.inner``.

Python 3.11 and newer store it in the code object; on 3.10 the function is looked up in its file. Any thread.
"""

from __future__ import annotations

from types import CodeType

from dynamo_dap.debuggee.code_analysis.line_table import LineTableError, line_table


def qualified_name(code: CodeType) -> str:
    """Return the qualified name of ``code``; on Python 3.10 the bare one where the file does not tell more."""
    known: str | None = getattr(code, "co_qualname", None)
    return known if known is not None else name_in_file(code)


def name_in_file(code: CodeType) -> str:
    """Return the qualified name that the file tells; the bare one when it cannot be read or has no such function."""
    try:
        functions = line_table(code.co_filename).functions
    except LineTableError:
        return code.co_name
    for function in functions:
        name = function.qualified_name
        if function.first_line == code.co_firstlineno and name.rpartition(".")[2] == code.co_name:
            return name
    return code.co_name
