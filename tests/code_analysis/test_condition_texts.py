"""Hit conditions and log messages are parsed as they were written, or refused."""

from __future__ import annotations

import pytest

from dynamo_dap.debuggee.agent.conditions import Conditions, InvalidCondition, parse_hit_condition, parse_log_message


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("3", [3]),
        ("= 3", [3]),
        (" == 3 ", [3]),
        (">= 3", [3, 4, 5, 6]),
        ("> 3", [4, 5, 6]),
        ("< 3", [1, 2]),
        ("<=3", [1, 2, 3]),
        ("% 2", [2, 4, 6]),
        ("> 0", [1, 2, 3, 4, 5, 6]),
        ("0", []),
    ],
)
def test_a_hit_condition_is_met(text: str, met: list[int]) -> None:
    condition = parse_hit_condition(text)
    assert [hits for hits in range(1, 7) if condition.is_met(hits)] == met


@pytest.mark.parametrize("text", ["", "three", "!= 3", "% 0", "-1", "3 4", "1" * 19])
def test_what_is_no_hit_condition_is_refused(text: str) -> None:
    with pytest.raises(InvalidCondition):
        parse_hit_condition(text)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ()),
        ("plain", (("plain", False),)),
        ("{x}", (("x", True),)),
        ("a{ x + 1 }b{y}", (("a", False), ("x + 1", True), ("b", False), ("y", True))),
        ("{{x}} {x}", (("{x} ", False), ("x", True))),
        ("{d[{1: 2}[1]]}", (("d[{1: 2}[1]]", True),)),
        ("{f('}', \"{\")}.", (("f('}', \"{\")", True), (".", False))),
        (r"{f('it\'s }')}", ((r"f('it\'s }')", True),)),
        ("{f('', 'A')}", (("f('', 'A')", True),)),
        ("{f('A')}", (("f('A')", True),)),
        ("a } b", (("a } b", False),)),
    ],
)
def test_a_log_message_is_cut_into_texts_and_expressions(text: str, parts: tuple[tuple[str, bool], ...]) -> None:
    assert parse_log_message(text).parts == parts


def test_each_expression_of_a_log_message_is_evaluated_where_it_stands() -> None:
    message = parse_log_message("{x} and {y}, {x}")
    assert message.expressions == ["x", "y"]
    assert message.format(str.upper) == "X and Y, X"


@pytest.mark.parametrize("text", ["{}", "{ }", "{x", "a {f(x} b", "{'}"])
def test_a_log_message_with_a_wrong_brace_is_refused(text: str) -> None:
    with pytest.raises(InvalidCondition):
        parse_log_message(text)


def test_texts_of_a_breakpoint_are_parsed_together() -> None:
    conditions = Conditions.parse(" x > 1 ", "2", "{x}")
    assert conditions.problem is None
    assert conditions.condition == "x > 1"
    assert conditions.hit_condition == parse_hit_condition("2")
    assert conditions.log_message == parse_log_message("{x}")
    nothing = Conditions.parse(" ", " ", "")
    assert (nothing.condition, nothing.hit_condition, nothing.log_message, nothing.problem) == (None,) * 4


@pytest.mark.parametrize(
    "texts",
    [
        ("x >", None, None),
        ("x = 1", None, None),
        ("(" * 5000, None, None),
        ("- " * 100_000 + "1", None, None),
        (None, "% 0", None),
        (None, None, "{"),
    ],
)
def test_a_wrong_text_is_a_problem(texts: tuple[str | None, str | None, str | None]) -> None:
    assert Conditions.parse(*texts).problem
