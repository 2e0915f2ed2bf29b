"""Compiles a user's expression or statements: parses, checks, and replaces the paths in it by names.

Each longest path (``self.fc.weight`` in ``self.fc.weight.shape[0] * 2``) becomes a separate name, whose value comes
from the trackers. Runs on any thread; the frame is accessed only through the given functions.
"""

from __future__ import annotations

import ast
import builtins
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dynamo_dap.debuggee.agent.stepping import Assignment
from dynamo_dap.debuggee.values.model import EvaluationError

PATH_NAME = "__path_{}__"


@dataclass
class Parsed:
    """A text that the user typed."""

    statements: list[ast.stmt]
    expression: ast.expr | None
    """The expression, or the last statement if it is one: its value is shown."""
    paths: dict[str, object] = field(default_factory=dict)
    """The trackers and objects behind the names that replace paths."""

    @property
    def is_bare(self) -> bool:
        """Whether it is a single expression."""
        return not self.statements and self.expression is not None

    def code_of_statements(self) -> types.CodeType | None:
        """Return the statements before the last expression."""
        if not self.statements:
            return None
        module = ast.Module(self.statements, [])
        return compile(ast.fix_missing_locations(module), "<debug console>", "exec")

    def code_of_expression(self) -> types.CodeType | None:
        """Return the expression whose value is shown."""
        if self.expression is None:
            return None
        return compile(ast.fix_missing_locations(ast.Expression(self.expression)), "<expression>", "eval")


def parse(text: str, *, statements_allowed: bool) -> Parsed:
    """Parse an expression or, if they are allowed, statements.

    Raises:
        EvaluationError: the text is not valid Python, or not an expression although statements are not allowed.
    """
    source = text.strip()
    if not source:
        raise EvaluationError("nothing to evaluate")
    try:
        return Parsed([], ast.parse(source, "<expression>", "eval").body)
    except SyntaxError as error:
        if not statements_allowed:
            raise EvaluationError(f"not a Python expression: {error.msg}") from None
    try:
        body = ast.parse(text, "<debug console>", "exec").body
    except SyntaxError as error:
        raise EvaluationError(f"not valid Python: {error.msg}") from None
    if body and isinstance(body[-1], ast.Expr):
        return Parsed(body[:-1], body[-1].value)
    return Parsed(body, None)


def names_used(parsed: Parsed) -> set[str]:
    """Return every name that is read."""
    names: set[str] = set()
    for tree in (*parsed.statements, *([parsed.expression] if parsed.expression is not None else ())):
        names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return names


def names_needed(expression: str) -> set[str]:
    """Return the names that an expression's evaluator has to provide."""
    parsed = parse(expression, statements_allowed=False)
    bound = set() if parsed.expression is None else names_bound(parsed.expression)
    return names_used(parsed) - bound - set(vars(builtins))


def names_bound(tree: ast.AST) -> set[str]:
    """Return every name that the expression binds itself: variables of comprehensions, parameters, ``:=``."""
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
    return bound


_CALLED_TWICE = frozenset({"abs", "float", "int", "len", "list", "max", "min", "range", "slice", "sum", "tuple"})
"""Builtins that may run twice."""


def is_repeatable(text: str) -> bool:
    """Return whether ``text`` is an expression that may run twice.

    Such an expression calls only functions and methods of torch, none in place, and some builtins. The program's own
    functions may print or change something, so an expression that calls them runs once.
    """
    try:
        tree = ast.parse(text.strip(), "<expression>", "eval")
    except SyntaxError:
        return False
    return all(_is_repeatable_call(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call))


def _is_repeatable_call(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id in _CALLED_TWICE
    if not isinstance(function, ast.Attribute) or function.attr.endswith("_"):
        return False
    return _root(function) == "torch" or hasattr(sys.modules["torch"].Tensor, function.attr)


def replace_paths(parsed: Parsed, follow: Callable[[ast.AST], object], missing: object) -> None:
    """Replace the longest paths that ``follow`` can resolve (it returns ``missing`` otherwise) by names."""
    trees: list[Any] = [*parsed.statements, *([parsed.expression] if parsed.expression is not None else ())]
    bound: set[str] = set()
    for tree in trees:
        bound |= names_bound(tree)
    replacer = _Replacer(parsed.paths, follow, missing, bound)
    parsed.statements = [replacer.visit(statement) for statement in parsed.statements]
    if parsed.expression is not None:
        parsed.expression = replacer.visit(parsed.expression)


def rename_calls(parsed: Parsed, names: dict[str, str]) -> None:
    """Rename calls of the builtins in ``names``, unless the parsed text binds their names itself."""
    trees: list[Any] = [*parsed.statements, *([parsed.expression] if parsed.expression is not None else ())]
    bound = {name for tree in trees for name in names_bound(tree)}
    for node in (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)):
        function = node.func
        if isinstance(function, ast.Name) and function.id in names.keys() - bound:
            one_type = function.id != "type" or (len(node.args) == 1 and not node.keywords)
            function.id = names[function.id] if one_type else function.id


class _Replacer(ast.NodeTransformer):
    def __init__(
        self, paths: dict[str, object], follow: Callable[[ast.AST], object], missing: object, bound: set[str]
    ) -> None:
        self._paths = paths
        self._follow = follow
        self._missing = missing
        self._bound = bound

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Load):
            root = _root(node)
            if root is not None and root not in self._bound:
                value = self._follow(node)
                if value is not self._missing:
                    name = PATH_NAME.format(len(self._paths))
                    self._paths[name] = value
                    return ast.copy_location(ast.Name(name, ast.Load()), node)
        return super().visit(node)


def _root(node: ast.AST) -> str | None:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def assignment(frame: object, target: str, value: str) -> Assignment:
    """Return the statement that gives ``target`` another value in a traced function.

    Raises:
        EvaluationError: ``target`` or ``value`` is not Python that is valid there.
    """
    text = f"{target.strip()} = ({value.strip()}\n)"
    try:
        ast.parse(value.strip(), "<expression>", "eval")
        body = ast.parse(text, "<expression>", "exec").body
    except SyntaxError as error:
        raise EvaluationError(f"not valid Python: {error.msg}") from None
    if len(body) != 1 or not isinstance(body[0], ast.Assign) or len(body[0].targets) != 1:
        raise EvaluationError(f"'{target}' cannot be assigned to")
    return Assignment(f"{target.strip()} = {value.strip()}", frame, target.strip())


def assigned_of_program(parsed: Parsed, is_of_program: Callable[[str], bool]) -> bool:
    """Return whether statements assign to variables or objects of the program."""
    try:
        check_assignments(parsed, is_of_program)
    except EvaluationError:
        return True
    return False


def check_assignments(parsed: Parsed, is_of_program: Callable[[str], bool]) -> None:
    """Refuse statements that assign to variables or objects of the program: the trace keeps its own values.

    Raises:
        EvaluationError: a target belongs to the program.
    """
    for statement in parsed.statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and is_of_program(node.id):
                raise EvaluationError(
                    f"'{node.id}' is a variable of the program, which cannot be assigned while tracing; "
                    "use a name of your own"
                )
            if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
                root = _root(node)
                if root is not None and is_of_program(root):
                    raise EvaluationError(
                        f"'{root}' is an object of the program, which cannot be changed while tracing"
                    )
