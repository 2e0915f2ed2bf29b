"""Requests about variables. Served on the held thread that they belong to."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dynamo_dap.debuggee.agent.handlers.formatting import formatted_text
from dynamo_dap.debuggee.agent.handlers.lookup import held_children, pause_of_variables
from dynamo_dap.debuggee.agent.pause import Pause
from dynamo_dap.debuggee.agent.requests import handles_while_held
from dynamo_dap.debuggee.values.model import Value, Variable
from dynamo_dap.debuggee.values.paging import page_of
from dynamo_dap.protocol.types import (
    SetVariableArguments,
    SetVariableResponseBody,
    ValueFormat,
    VariablePresentationHint,
    VariablesArguments,
    VariablesResponseBody,
)
from dynamo_dap.protocol.types import Variable as DapVariable

if TYPE_CHECKING:
    from dynamo_dap.debuggee.agent.agent import Agent

READ_ONLY = "readOnly"


@handles_while_held(
    "variables", VariablesArguments, lambda agent, arguments: pause_of_variables(agent, arguments.variables_reference)
)
def variables(agent: Agent, pause: Pause, arguments: VariablesArguments) -> VariablesResponseBody:
    """Return the children of a value or scope, or a page of them."""
    children = held_children(agent, arguments.variables_reference)
    page = page_of(children, arguments.filter, max(0, arguments.start or 0), arguments.count or 0)
    shown = [_dap_variable(agent, pause, one, arguments.format, children.is_writable) for one in page]
    return VariablesResponseBody(_uniquely_named(shown))


def _uniquely_named(variables: list[DapVariable]) -> list[DapVariable]:
    """Number the names that come again: clients tell the children of a value apart by name (DAP ``Variable``)."""
    seen: Counter[str] = Counter()
    for variable in variables:
        name = variable.name
        seen[name] += 1
        if seen[name] > 1:
            variable.name = f"{name} ({seen[name]})"
    return variables


def _dap_variable(
    agent: Agent, pause: Pause, variable: Variable, wanted: ValueFormat | None, is_writable: bool
) -> DapVariable:
    value = variable.value
    return DapVariable(
        name=variable.name,
        value=formatted_text(value, wanted),
        variables_reference=children_reference(agent, pause, value),
        type=value.type_name,
        presentation_hint=presentation_hint(value, is_writable),
        evaluate_name=variable.evaluate_name,
        named_variables=named_count(value),
        indexed_variables=indexed_count(value),
        memory_reference=value.memory_reference,
        declaration_location_reference=_location_reference(agent, pause, variable.declaration),
        value_location_reference=_location_reference(agent, pause, value.location),
    )


def children_reference(agent: Agent, pause: Pause, value: Value) -> int:
    """Return the variables reference of a value, 0 when it has no children."""
    return agent.references.number_of(value.children, pause) if value.children is not None else 0


def presentation_hint(value: Value, is_writable: bool) -> VariablePresentationHint | None:
    """Return a value's DAP presentation hint; ``is_writable`` says whether its scope or frame can set anything."""
    attributes = list(value.attributes)
    if not is_writable and READ_ONLY not in attributes:
        attributes.append(READ_ONLY)
    if value.kind is None and not attributes and not value.lazy:
        return None
    return VariablePresentationHint(kind=value.kind, attributes=attributes or None, lazy=True if value.lazy else None)


def named_count(value: Value) -> int | None:
    """Return how many named children a value has, when it also has indexed ones: a client pages only these."""
    if value.children is None or value.lazy or not value.children.indexed_count:
        return None
    return value.children.named_count


def indexed_count(value: Value) -> int | None:
    """Return how many indexed children a value has; None for none."""
    if value.children is None or value.lazy:
        return None
    return value.children.indexed_count or None


def _location_reference(agent: Agent, pause: Pause, location: object) -> int | None:
    return agent.references.number_of(location, pause) if location is not None else None


@handles_while_held(
    "setVariable",
    SetVariableArguments,
    lambda agent, arguments: pause_of_variables(agent, arguments.variables_reference),
)
def set_variable(agent: Agent, pause: Pause, arguments: SetVariableArguments) -> SetVariableResponseBody:
    """Change one child of a value or scope."""
    value = held_children(agent, arguments.variables_reference).write(arguments.name, arguments.value)
    return SetVariableResponseBody(
        value=formatted_text(value, arguments.format),
        type=value.type_name,
        variables_reference=children_reference(agent, pause, value),
        named_variables=named_count(value),
        indexed_variables=indexed_count(value),
    )
