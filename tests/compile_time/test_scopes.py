"""The contents of each scope of a paused trace, in the user's terms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dynamo_dap.debuggee.trace.frames import scopes_of
from dynamo_dap.debuggee.trace.graph_view import graph_source
from tests.compile_time.stopping import at, below, line_of, scope, texts

Compiled = Callable[[Any], Any]
seen_so_far = 0


class Layer(nn.Module):
    """A module that keeps state."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.calls = 0
        self.sizes = [1, 2]

    def forward(self, x: torch.Tensor, d: dict[str, Any], untouched: Any = None) -> torch.Tensor:
        global seen_so_far
        self.calls += 1
        seen_so_far = seen_so_far + 1
        y = self.fc(x)
        d["result"] = y
        d["k"] = 2
        del d["gone"]
        self.sizes.append(len(d))
        n = x.shape[0]
        shift = 1.0

        def inner(z: torch.Tensor) -> torch.Tensor:
            return z + shift

        if n > 3:
            y = y * 2
        return inner(y) + d["k"]  # @stop


def module(compiled: Compiled) -> list[Any]:
    global seen_so_far
    seen_so_far = 0
    layer = Layer()
    d: dict[str, Any] = {"k": 1, "gone": 0}
    return [compiled(layer)(torch.ones(5, 4), d), d]


module.__wrapped__ = Layer  # type: ignore[attr-defined]  # markers are looked up in the class


def test_the_scopes_of_a_frame() -> None:
    names = at("stop", module, lambda frame: [each.name for each in scopes_of(frame)], dynamic=True)
    assert names == ["Locals", "Value Stack", "Cells", "Globals", "Graph", "Guards", "Side Effects", "Compile"]


def test_locals() -> None:
    shown = at("stop", module, lambda frame: texts(frame, "Locals"), dynamic=True)
    assert shown == {
        "self": "<Layer module>",
        "x": "Tensor f32[s77, 4] cpu",
        "d": "{'k': 2, 'result': Tensor f32[s77, 4] cpu requires_grad}",
        "untouched": "None",
        "y": "Tensor f32[s77, 4] cpu requires_grad",
        "n": "s77 (5 in this call)",
        "inner": "function inner(z)",
        "shift": "1.0",
    }


def test_cells_are_a_scope_besides() -> None:
    def look(frame: Any) -> tuple[dict[str, str], dict[str, str]]:
        return texts(frame, "Cells"), texts(frame, "Locals")

    cells, others = at("stop", module, look, dynamic=True)
    assert cells == {"shift": "1.0"}
    assert others["shift"] == "1.0", "what the function binds or captures is among its locals, too"


def test_globals_are_those_that_the_code_names() -> None:
    shown = at("stop", module, lambda frame: texts(frame, "Globals"), dynamic=True)
    assert shown == {"seen_so_far": "1"}


def test_a_tensor_shows_its_metadata_node_source_and_line() -> None:
    def look(frame: Any) -> tuple[dict[str, str], Any]:
        children = below(scope(frame, "Locals")["x"].value)
        made = below(scope(frame, "Side Effects")["d['result']"].value)
        return {name: variable.value.text for name, variable in children.items()}, made

    shown, made = at("stop", module, look, dynamic=True)
    expected = {
        "shape": "[s77, 4]",
        "stride": "[4, 1]",
        "dtype": "torch.float32",
        "device": "cpu",
        "layout": "torch.strided",
        "requires_grad": "False",
        "tracker": "TensorVariable",
        "source": "x, for guards L['x']",
        "mutation": "existed before",
    }
    assert {name: shown[name] for name in expected} == expected
    assert shown["FX node"].endswith("= graph input")
    place = made["created at"].value.location
    assert place is not None
    assert place.path == __file__


def test_a_symbol_shows_expression_hint_range_and_source() -> None:
    def look(frame: Any) -> dict[str, str]:
        return {name: variable.value.text for name, variable in below(scope(frame, "Locals")["n"].value).items()}

    shown = at("stop", module, look, dynamic=True)
    assert shown["expression"] == "s77"
    assert shown["hint"] == "5"
    assert shown["range of s77"] == "4 … ∞"
    assert shown["s77 is"] == "L['x'].size()[0]"


def test_attributes_show_pending_changes() -> None:
    def look(frame: Any) -> dict[str, str]:
        return {name: variable.value.text for name, variable in below(scope(frame, "Locals")["self"].value).items()}

    shown = at("stop", module, look, dynamic=True)
    assert shown["calls"] == "1"
    assert shown["sizes"] == "[1, 2, 2]"
    assert shown["fc"] == "<Linear module>"


def test_the_graph_has_a_line_for_each_node() -> None:
    def look(frame: Any) -> tuple[dict[str, str], Any, str]:
        nodes = scope(frame, "Graph")
        return texts(frame, "Graph"), nodes["mul" if "mul" in nodes else "y_1"], graph_source(frame).text()

    shown, last, text = at("stop", module, look, dynamic=True)
    assert any(each.startswith("torch._C._nn.linear(") for each in shown.values())
    assert any(each.endswith("* 2 → f32[s77, 4] cpu requires_grad") for each in shown.values())
    assert last.declaration is not None
    assert last.declaration.path == __file__
    assert "y = y * 2" in text
    assert "→" not in text


def test_guards_are_expressions_with_their_line() -> None:
    def look(frame: Any) -> dict[str, Any]:
        return {variable.value.text: variable for variable in scope(frame, "Guards").values()}

    shown = at("stop", module, look, dynamic=True)
    of_sizes = [text for text, one in shown.items() if one.value.type_name == "SHAPE_ENV"]
    assert of_sizes
    assert all("size()" in text for text in of_sizes), "conditions, and no row that only announces them"
    assert not [one for one in at("stop", module, look).values() if one.value.type_name == "SHAPE_ENV"]
    assert "type(L['self']) is Layer" in shown
    assert "L['self'].calls == 0" in shown
    assert "list(L['d'].keys()) == ['k', 'gone']" in shown or any("L['d']" in text for text in shown)
    assert "L['x'].size()[0] > 3" in shown
    tensor = next(text for text in shown if text.startswith("TENSOR_MATCH L['x']"))
    assert shown[tensor].value.type_name == "TENSOR_MATCH"
    condition = shown["L['x'].size()[0] > 3"]
    assert condition.declaration is not None
    assert condition.declaration.line == line_of("stop", Layer) - 2


def test_side_effects_are_what_the_user_wrote() -> None:
    def look(frame: Any) -> dict[str, Any]:
        return scope(frame, "Side Effects")

    shown = at("stop", module, look, dynamic=True)
    assert {name: variable.value.text for name, variable in shown.items()} == {
        "self.calls": "1",
        "global seen_so_far": "1",
        "d['result']": "Tensor f32[s77, 4] cpu requires_grad",
        "d['k']": "2",
        "del d['gone']": "deleted",
        "self.sizes.append → [2]": "2",
    }
    assert all(variable.declaration is not None for variable in shown.values())


def test_compile_shows_which_compile_this_is() -> None:
    shown = at("stop", module, lambda frame: texts(frame, "Compile"), dynamic=True)
    assert shown["compile id"] == "0/0"
    assert shown["attempt"] == "1"
    assert shown["backend"] == "backend"
    assert shown["fullgraph"] == "False"
    assert shown["dynamic"].startswith("True")
    assert shown["frame"].endswith("Layer.forward")
    assert int(shown["graph nodes"]) > 3
    assert int(shown["guards"]) > 10
    assert shown["elapsed"].endswith("pauses included")


def stack_program(compiled: Compiled) -> list[Any]:
    def fn(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return (x, 1)[0] + x  # @inside

    return [compiled(fn)(torch.ones(2))]


def test_the_value_stack_is_bottom_to_top() -> None:
    shown = at("inside", stack_program, lambda frame: texts(frame, "Value Stack"))
    assert next(iter(shown.values())) == "__exit__ of torch.set_grad_enabled(False)"
    assert list(shown)[-1].endswith("(top)")


def restart_program(compiled: Compiled) -> list[Any]:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2  # @after

    return [compiled(fn)(torch.ones(2))]


def test_a_resume_function_shows_the_users_locals() -> None:
    shown = at("after", restart_program, lambda frame: (texts(frame, "Locals"), texts(frame, "Compile")))
    assert shown[0]["y"] == "Tensor f32[2] cpu = [2.0, 2.0]"
    assert not [name for name in shown[0] if name.startswith("__")]
    assert "fn (resumed at line" in shown[1]["frame"]


def inlined_program(compiled: Compiled) -> list[Any]:
    def helper(v: torch.Tensor, *rest: int, **options: int) -> torch.Tensor:
        return v + len(rest) + options["a"]  # @helper

    def fn(x: torch.Tensor) -> torch.Tensor:
        return helper(x + 1, 1, 2, a=3)

    return [compiled(fn)(torch.ones(2))]


def test_an_inlined_function_has_its_own_locals_and_the_shared_graph() -> None:
    def look(frame: Any) -> tuple[dict[str, str], dict[str, str], Any]:
        return texts(frame, "Locals"), texts(frame, "Compile"), texts(frame, "Graph")

    local, compiled, graph = at("helper", inlined_program, look)
    assert local == {"v": "Tensor f32[2] cpu = [2.0, 2.0]", "rest": "(1, 2)", "options": "{'a': 3}"}
    assert compiled["inline depth"] == "1"
    assert compiled["frame"].endswith("fn")
    assert list(graph.values()) == ["graph input → f32[2] cpu", "x + 1 → f32[2] cpu"]


def library_program(compiled: Compiled) -> list[Any]:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Linear(2, 2)])

        def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            x = self.layers[0](x) * scale
            return x + 1  # @named

    return [compiled(Model())(torch.ones(2), torch.ones(2))]


def test_inputs_of_the_graph_are_named_as_the_user_wrote_them() -> None:
    def look(frame: Any) -> tuple[dict[str, str], dict[str, str], str]:
        nodes = scope(frame, "Graph")
        weight = {name: one.value.text for name, one in below(nodes["self.layers[0].weight"].value).items()}
        return {name: one.value.text for name, one in nodes.items()}, weight, graph_source(frame).text()

    nodes, weight, document = at("named", library_program, look)
    assert weight["in torch's logs"] == "l_self_modules_layers_modules_0_parameters_weight_"
    # The result of a line has the same name as the input, so the node's expression names the other value.
    assert nodes["x"] == "linear * scale → f32[2] cpu requires_grad"
    assert nodes["l_x_"].startswith("graph input")
    assert "def forward(self, l_x_, scale):" in document
    assert "linear = torch._C._nn.linear(l_x_, self.layers[0].weight, self.layers[0].bias)" in document
    assert "# self.layers[0].weight: f32[2, 2] cpu requires_grad, in torch's logs l_self_modules" in document
