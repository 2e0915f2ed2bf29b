"""The Variables pane of a paused trace."""

from __future__ import annotations

from tests.client import Fixture, Session
from tests.client.session import Tree

SCOPES = ["Locals", "Value Stack", "Globals", "Graph", "Guards", "Side Effects", "Compile"]


def test_scopes_and_a_tensor(session: Session) -> None:
    session.launch("basic", "first", "branch", "in_helper", "return")
    stop = session.wait_for_stop("breakpoint", at="first")
    assert stop.description == "Tracing compute [0/0]", "the headline of the call stack"
    assert stop.body["text"].startswith("Paused on breakpoint")
    assert stop.body["text"].endswith("while Dynamo traces compute [0/0]")
    assert stop.frame["Side Effects"].texts() == {"(none so far)": ""}
    assert list(stop.frame.scopes) == SCOPES
    locals_before = stop.frame["Locals"].texts()
    assert set(locals_before) == {"x", "y", "mode"}
    assert "f32[3, 4]" in locals_before["x"]
    assert "requires_grad" in locals_before["y"]
    assert "'add'" in locals_before["mode"]
    assert stop.frame["Graph"].children == {} or "z" not in str(stop.frame["Graph"].texts())

    stop = session.continue_to_stop(at="branch")
    z = stop.frame["Locals"]["z"]
    assert z.text == "Tensor f32[3, 4] cpu all 3, requires_grad"
    facts = z.texts()
    assert facts["dtype"] == "torch.float32"
    assert facts["shape"] == "[3, 4]"
    assert "cpu" in facts["device"]
    for fact in ("stride", "layout", "requires_grad"):
        assert fact in facts, f"no {fact} in {facts}"
    assert stop.frame["Locals"]["x"].text == "Tensor f32[3, 4] cpu all 1"
    assert str(Fixture("basic").line("first")) in str(facts), "the line that created it"
    assert "z" in str(stop.frame["Graph"].texts()), "the graph's nodes are named after the user's locals"
    assert stop.frame["Guards"].children

    helper = session.continue_to_stop(at="in_helper")
    assert helper.frame["Locals"].texts() == {"tensor": "Tensor f32[3, 4] cpu all 3, requires_grad", "factor": "2"}
    assert helper.frame_called("compute")["Locals"]["z"].text == "Tensor f32[3, 4] cpu all 3, requires_grad"
    stop = session.continue_to_stop(at="return")
    assert stop.frame["Locals"]["shape"].text.replace("torch.Size", "").startswith(("([3, 4])", "(3, 4)"))
    compile_facts = stop.frame["Compile"].texts()
    assert "0/0" in str(compile_facts)
    assert "eager" in str(compile_facts)
    assert session.finish() == 0


def _all_below(tree: Tree, depth: int) -> list[Tree]:
    below = list(tree.children.values()) if depth else []
    return [*below, *(one for child in below for one in _all_below(child, depth - 1))]


def test_what_cannot_be_set_is_marked_and_refused_with_a_reason(session: Session) -> None:
    session.launch("basic", "branch")
    stop = session.wait_for_stop("breakpoint", at="branch")
    variables = stop.frame["Locals"].children
    for one in variables.values():
        assert "readOnly" not in (
            one.variable.presentation_hint.attributes or () if one.variable.presentation_hint else ()
        )
    others = [scope for name, scope in stop.frame.scopes.items() if name != "Locals"]
    shown = [one for tree in (*variables.values(), *others) for one in _all_below(tree, 2)]
    shown += [one for frame in stop.frames[1:] for one in frame["Locals"].children.values()]
    assert {"dtype", "compile id"} <= {one.name for one in shown}
    for one in shown:
        hint = one.variable.presentation_hint
        assert hint is not None, one.name
        # A tensor's sizes can be set to symbols or to numbers.
        assert ("readOnly" in (hint.attributes or ())) == (one.name != "shape"), one.name
    reference = stop.frame["Graph"].variable.variables_reference
    write = {"variablesReference": reference, "name": "z", "value": "x"}
    assert session.refusal("setVariable", write).startswith("'z' is read-only")
    write = {"frameId": stop.frames[1].data.id, "expression": "z", "value": "x"}
    assert session.refusal("setExpression", write).startswith("nothing can be assigned in this")
    assert session.finish() == 0


def test_containers_are_trees(session: Session) -> None:
    session.launch("containers", "total")
    stop = session.wait_for_stop("breakpoint", at="total")
    variables = stop.frame["Locals"]
    items = variables["items"]
    assert [child.text for child in items.children.values() if child.name.strip("[]").isdigit()] == [
        f"Tensor f32[4, 2] cpu = {[[1.0, 1.0]] * 4}",
        f"Tensor f32[4, 2] cpu = {[[2.0, 2.0]] * 4}",
        "3",
        "'four'",
    ]
    assert variables["pair"]["right"].text == "7"
    assert variables["local"]["rate"].text == "0.5"
    assert "True" not in variables["empty"].text
    assert not [name for name in variables["empty"].children if name.isdigit()]
    assert "Color.RED" in variables["color"].text
    assert variables["dtype"].text == "torch.float32"
    assert "range(0, 10, 2)" in variables["span"].text
    assert len(variables["text"].text) < 500
    assert "aaa" in variables["text"].text
    many = variables["many"].variable
    assert many.indexed_variables == 300
    page = session.client.variables(many.variables_reference, only="indexed", start=295, count=5)
    assert [variable.value for variable in page] == ["295", "296", "297", "298", "299"]
    nested = variables["table"]
    assert "'two'" in str(nested.texts())
    account = variables["account"]
    assert "Account" in account.text
    assert account["balance"].text.startswith("12")
    assert "custom" in variables["settings"]["name"].text
    # The program has not read this part of the argument yet, so the debugger must not read it either.
    assert "never" in str(_open_texts(variables["config"], 3))
    opened = stop.frame["Side Effects"].open(2)
    assert opened > 0
    assert session.run_to_end() == 0
    assert "total 1366.5 balance 12.0 ['deposit']" in session.output("stdout")


def test_symbolic_sizes(session: Session) -> None:
    session.launch("dynamic_shapes", "pad")
    stop = session.wait_for_stop("breakpoint", at="pad")
    rows = stop.frame["Locals"]["rows"]
    assert "s" in rows.text
    assert "8" in rows.text, "the hint"
    facts = rows.texts()
    assert "hint" in facts
    assert facts["hint"] == "8"
    batch = stop.frame["Locals"]["batch"].text
    assert batch.startswith("Tensor f32[s")
    session.set_breakpoints("dynamic_shapes")
    assert session.run_to_end() == 0


def test_cells_globals_and_side_effects(session: Session) -> None:
    session.launch("closures", "read_cell", "inner_cell")
    stop = session.wait_for_stop("breakpoint", at="read_cell")
    cells = stop.frame["Cells"].texts()
    assert cells["count"] == "5"
    assert cells["offset"].startswith("Tensor f32[2]") or "f32[2]" in cells["offset"]
    assert "count" in str(_open_texts(stop.frame["Side Effects"], 2))
    assert list(stop.frame.scopes) == [*SCOPES[:2], "Cells", *SCOPES[2:]]
    assert "logged" in stop.frame["Globals"], "the globals that the function names"
    stop = session.continue_to_stop(at="inner_cell")
    assert stop.frame["Cells"]["count"].text == "5"
    assert session.run_to_end() == 0


def test_side_effects_so_far(session: Session) -> None:
    session.launch("side_effects", "return")
    stop = session.wait_for_stop("breakpoint", at="return")
    shown = str(_open_texts(stop.frame["Side Effects"], 3))
    for part in ("d['result']", "log", "state.last", "CALLS"):
        assert part in shown, f"no {part} in {shown}"
    assert stop.frame["Locals"]["d"]["['result']"].text.startswith("Tensor f32[3]")
    assert session.run_to_end() == 0


def test_graph_as_a_document_and_guards_with_their_lines(session: Session) -> None:
    session.launch("model", "model_return")
    stop = session.wait_for_stop("breakpoint", at="model_return")
    scopes = {scope.name: scope for scope in session.client.scopes(stop.frame.data.id)}
    graph = stop.frame["Graph"].children
    assert graph
    document = scopes["Graph"].source
    assert document is not None
    assert document.source_reference
    text = session.client.source(document.source_reference).content
    assert "linear" in text
    assert "# model.py:" in text, "the user's lines stand beside the nodes"
    guards = list(stop.frame["Guards"].children.values())
    assert len(guards) > 2
    assert any("model.py" in str(_open_texts(guard, 1)) for guard in guards)
    assert session.run_to_end() == 0


def _open_texts(tree: object, depth: int) -> dict[str, object]:
    from tests.client.session import Tree

    assert isinstance(tree, Tree)
    return {
        name: (child.text, _open_texts(child, depth - 1) if depth > 1 else "") for name, child in tree.children.items()
    }
