"""Expressions that the data flow gives, and what the exception table says."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest

from dynamo_dap.debuggee.bytecode.constants import constant_text
from dynamo_dap.debuggee.bytecode.data_flow import MAXIMUM_TEXT, NO_CONSTANT, DataFlow, is_move, loads_method
from dynamo_dap.debuggee.bytecode.instructions import InstructionTable
from dynamo_dap.debuggee.bytecode.stack_depth import StackDepths


def _calls(function: Callable[..., Any]) -> list[str]:
    depths = StackDepths(function.__code__)
    flow = DataFlow(depths)
    found = []
    for instruction in depths.table:
        call = flow.call_at(instruction.index)
        if call is not None:
            found.append(f"{call.callee.text}({', '.join(argument.text for argument in call.arguments)})")
    return found


def test_calls_are_read_as_they_were_written() -> None:
    def function(d: Any, x: Any, items: Any) -> Any:
        d.update({"a": x[0]})
        len([x, (1,)])
        d["k"].run(x, key=3)
        x(*items, **d)
        return d.a.b(x + 1)(items[1:2])

    calls = _calls(function)
    assert calls[0] == "d.update({'a': x[0]})"
    assert calls[1] == "len([x, (1,)])"
    assert calls[2] == "d['k'].run(x, 3)"
    assert calls[3].startswith("x(items, ")
    assert "NULL" not in calls[3]
    assert calls[4:] == ["d.a.b(x + 1)", "d.a.b(x + 1)(items[1:2])"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("f(*a, **b)", "f(*a, **b)"),
        ("f(*a, c=c, **b)", "f(*a, **{'c': c, **b})"),
        ("f(**a)", "f(**a)"),
        ("f(1, *b)", "f(1, *b)"),
        ("f(*a, c, *b, k=c)", "f(*a, c, *b, **{'k': c})"),
        ("f(*(a or b))", "f(*(a or b))"),
        ("f(*a.b)", "f(*a.b)"),
        ("(1, *a)", "(1, *a)"),
        ("(*a,)", "(*a,)"),
        ("[*a, b]", "[*a, b]"),
        ("[1, 2, 3]", "[1, 2, 3]"),
        ("{*a, b}", "{*a, b}"),
        (f"{{{', '.join(16 * ['a: b'])}}}", f"{{{', '.join(16 * ['a: b'])}}}"),
        ("{**a, 'k': b}", "{**a, **{'k': b}}"),
        ("[a + b, *(c or [a, b])]", "[a + b, *(c or [a, b])]"),
    ],
)
def test_a_container_is_shown_with_what_was_added_to_it(text: str, shown: str) -> None:
    function: Callable[..., Any] = eval(f"lambda f, a, b, c: {text}")
    depths = StackDepths(function.__code__)
    flow = DataFlow(depths)
    (returned,) = [flow.operands(one.index)[0].text for one in depths.table if one.is_return]
    assert returned == shown


@pytest.mark.parametrize(("text", "shown"), [("[x * 2 for x in a]", "[…]"), ("{x: 1 for x in a}", "{…}")])
def test_what_a_loop_adds_to_a_container_is_left_open(text: str, shown: str) -> None:
    code = eval(f"lambda a: {text}").__code__
    codes = [code, *(each for each in code.co_consts if isinstance(each, CodeType))]  # the loop's own, up to 3.11
    flows = [(DataFlow(depths), depths.table) for depths in map(StackDepths, codes)]
    assert shown in [flow.operands(one.index)[0].text for flow, table in flows for one in table if one.is_return]


def test_operands_have_the_parentheses_that_they_need() -> None:
    def function(f: Any, a: Any, b: Any) -> Any:
        f((a(1) + b(2)) * 3)
        f((a + b[1]).c)
        f({"a": a}["a b"].c, [a, b][0])
        f((a == "( ") * b, a("x + y").c)

    assert [text for text in _calls(function) if text.startswith("f(")] == [
        "f((a(1) + b(2)) * 3)",
        "f((a + b[1]).c)",
        "f({'a': a}['a b'].c, [a, b][0])",
        "f((a == '( ') * b, a('x + y').c)",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("(a or b).real", "(a or b).real"),
        ("(a and b).real", "(a and b).real"),
        ("(a or b or c) + 1", "(a or b or c) + 1"),
        ("((a or b) and c) - 1", "….real"),
        ("(a and b or c).real", "….real"),
        ("(a if c else b).real", "….real"),
        ("(not a or b).real", "….real"),
        ("((a or b).real and c).real", "((a or b).real and c).real"),
        ("((a or b).real or (b and c).real).imag", "….imag"),
    ],
)
def test_a_value_that_depends_on_the_path_is_not_shown_as_one_of_them(text: str, shown: str) -> None:
    function: Callable[..., int] = eval(f"lambda a, b, c: {text}")
    depths = StackDepths(function.__code__)
    flow = DataFlow(depths)
    returns = [flow.operands(one.index)[0].text for one in depths.table if one.is_return]
    # A compiler may write the return once for each path.
    if "…" not in "".join(returns):
        for given in itertools.product((0, 1, 2), repeat=3):
            assert function(*given) in [eval(each, dict(zip("abc", given, strict=True))) for each in returns]
    else:
        assert "…" in returns[0]
    if "…" not in shown:
        assert returns == [shown]


def test_what_is_returned_or_unreachable_has_a_known_stack() -> None:
    def function(a: Any, b: Any) -> Any:
        return a - b

    depths = StackDepths(function.__code__)
    flow = DataFlow(depths)
    (index,) = (one.index for one in depths.table if one.name.startswith("BINARY"))
    assert [one.text for one in flow.stack_before(index)] == ["a", "b"]
    assert flow.stack_before(10_000) == ()


def _flow(function: Callable[..., Any]) -> tuple[InstructionTable, DataFlow]:
    depths = StackDepths(function.__code__)
    return depths.table, DataFlow(depths)


def _consumers(table: InstructionTable, flow: DataFlow, variable: str) -> list[list[str]]:
    """Return what uses each value of ``variable``, by the names of the instructions."""
    made = [result for one in table if not is_move(one) for result in flow.results(one.index)]
    return [[table[index].name for index in value.consumers] for value in made if value.variable == variable]


def test_consumers_skip_what_only_moves_values() -> None:
    def function(a: Any, b: Any) -> None:
        a[0] += b

    table, flow = _flow(function)
    (uses,) = _consumers(table, flow, "a")
    assert [name.partition("_")[0] for name in uses] == ["BINARY", "STORE"]
    (uses,) = _consumers(table, flow, "b")
    assert [name.partition("_")[0] for name in uses] in (["BINARY"], ["INPLACE"])
    (stored,) = (one for one in table if one.name == "STORE_SUBSCR")
    assert [one.text for one in flow.operands(stored.index)] == ["a[0] + b", "a", "0"]


def test_each_value_that_a_choice_is_from_is_used_by_what_uses_the_choice() -> None:
    def function(a: Any, b: Any) -> Any:
        return (a or b).real

    table, flow = _flow(function)
    (uses,) = _consumers(table, flow, "b")
    assert uses == ["LOAD_ATTR"]
    assert any("LOAD_ATTR" in uses for uses in _consumers(table, flow, "a"))


@pytest.mark.parametrize(
    ("text", "root", "variable"),
    [
        ("f(1).x[0].run()", "f", "f"),
        ("f.x.run()", "f", "f"),
        ("f[1:2].run()", "f", "f"),
        ("(f + a).run()", "f + a", None),
        ("(f or a).run()", "(f or a)", None),
        ("'x'.run()", "'x'", None),
    ],
)
def test_a_callee_begins_with_a_variable_or_with_what_was_computed(text: str, root: str, variable: str | None) -> None:
    table, flow = _flow(eval(f"lambda f, a: {text}"))
    callee = next(call.callee for one in reversed(list(table)) if (call := flow.call_at(one.index)) is not None)
    assert callee.name == "run"
    assert callee.variable is None, "it is an attribute"
    assert callee.root.text == root
    assert callee.root.variable == variable
    assert (callee.root.constant is NO_CONSTANT) == (root != "'x'")


def test_a_loop_is_over_the_iterator_of_what_is_written() -> None:
    def function(items: Any) -> None:
        for _ in items.parts:
            pass

    table, flow = _flow(function)
    (loop,) = (one for one in table if one.name == "FOR_ITER")
    assert flow.operands(loop.index)[0].text == "iter(items.parts)"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has blocks and no exception table")
def test_exception_table() -> None:
    def function(a: Any) -> Any:
        try:
            return a[0]
        except KeyError:
            return None

    code = function.__code__
    depths = StackDepths(code)
    protected = depths.table.protected[0]
    covered = [one.name for one in depths.table if protected.start <= one.offset < protected.end]
    assert "BINARY_SUBSCR" in covered or "BINARY_OP" in covered
    handler = depths.table.at(protected.handler)
    assert handler is not None
    assert handler.name == "PUSH_EXC_INFO"
    assert depths.before(handler.index) == protected.handler_depth == 1
    flow = DataFlow(depths)
    assert [one.text for one in flow.stack_before(handler.index)] == ["exception"]
    assert not flow.has_uneven_paths


def test_only_a_called_attribute_is_loaded_as_a_method() -> None:
    table, _ = _flow(lambda a: (a.b, a.c, a.d, a.e()))
    attributes = [one for one in table if one.name in ("LOAD_ATTR", "LOAD_METHOD")]
    assert [str(one.value) for one in attributes if loads_method(one)] == ["e"]


class _Loud:
    def __repr__(self) -> str:
        raise AssertionError("the repr of a constant must not be called")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        ("it's", '"it\'s"'),
        ((1, "a", (2.5,)), "(1, 'a', (2.5,))"),
        (frozenset({1}), "frozenset({1})"),
        ({"a": 1}, "<dict>"),
        (_Loud(), f"<{__name__}._Loud>"),
        ([_Loud()], f"[<{__name__}._Loud>]"),
        (10**2000, "<a huge int>"),
        (True, "True"),
        (slice(1, None), "slice(1, None, None)"),
    ],
)
def test_constants_are_text_without_their_own_repr(value: object, text: str) -> None:
    assert constant_text(value) == text


def test_constant_text_is_bounded() -> None:
    assert len(constant_text("x" * 10_000)) <= 60
    assert len(constant_text(tuple(range(10_000)))) <= 60
    nested: Any = ()
    for _ in range(100):
        nested = (nested,)
    assert len(constant_text(nested)) <= 60


def test_an_expression_is_known_whole_when_its_text_is_cut() -> None:
    text = f"def function(d):\n    d{''.join(f'.name_{number}[{number}]' for number in range(40))}.run('key', d)\n"
    names: dict[str, Any] = {}
    exec(text, names)
    depths = StackDepths(names["function"].__code__)
    flow = DataFlow(depths)
    (call,) = filter(None, (flow.call_at(one.index) for one in depths.table))
    assert len(call.callee.text) == MAXIMUM_TEXT
    assert call.callee.name == "run"
    assert call.callee.root.variable == "d"
    assert [one.name for one in call.callee.path() if one.name][1:3] == ["name_39", "name_38"]
    assert call.arguments[0].constant == "key"
    assert call.arguments[1].constant is NO_CONSTANT
