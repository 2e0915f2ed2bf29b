"""``dynamo-dap compare`` on programs with injected defects, and on correct ones: no false verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.environments import need_inductor
from tests.end_to_end.verdicts import WRONG, compared, correct_calls, false_alarms, marked_lines, scores

pytestmark = pytest.mark.long


def test_wrong_programs_differ_at_their_line_and_stage() -> None:
    """Each injected defect is found, with the line and the stage."""
    need_inductor("functions with defects in Inductor")
    assert sum(len(marked_lines(program)) for program in WRONG) >= 97
    assert [each for each in scores() if not each.is_right] == []
    assert compared("defects.py")[0] == 1


def test_the_row_at_fault_is_never_the_same() -> None:
    """The line that a verdict names differs in the table, too."""
    need_inductor("functions with defects in Inductor")
    for body in (body for program in WRONG for body in compared(program)[1] if body.get("lines")):
        for row in body["lines"]:
            if (row["path"], row["line"]) == (body.get("path"), body.get("line")):
                kinds = [row[name] for name in ("compiled", "dynamo", "gradient") if name in row]
                assert not all(each["same"] for each in kinds), body["function"]


def test_the_part_of_inductor_is_named() -> None:
    """As ``bisect`` does, ``compare`` says which decomposition, pass or lowering is at fault."""
    need_inductor("functions with defects in Inductor")
    calls = [*compared("stages.py")[1], *compared("gradients.py")[1]]
    parts = {each["function"]: each["part"] for each in calls if "part" in each}
    assert parts["wrong_decomposition"] == "the decomposition of aten.silu.default"
    assert parts["wrong_lowering_of_sine"] == "the lowering of sin"
    assert parts["wrong_pass"] == "the post-grad pass post_grad_custom_post_pass"
    assert parts["decomposition_of_a_backward"] == "the decomposition of aten.silu_backward.default"
    assert parts["wrong_results_without_a_setting"] == "the setting emulate_precision_casts = True"
    assert {*parts} >= {"lowering_of_a_backward", "wrong_lowering_of_a_maximum"}


def test_correct_programs_do_not_differ() -> None:
    """No call of a correct program differs; what was left out is listed."""
    status, calls = compared("correct.py")
    need_inductor("functions that round otherwise")
    assert (status, len(calls), false_alarms()) == (0, 75, [])
    assert len(correct_calls()) >= 176
    left_out = [each["notCompared"] for each in calls if "notCompared" in each]
    assert sum("torch.empty" in each for names in left_out for each in names) == 4
    assert any("gradients: no backward pass was run" in names for names in left_out)
    assert all("strides of gradients" in each["notCompared"] for each in calls), "what is never compared is listed"


def test_a_compile_that_is_not_valid_is_named() -> None:
    """The verdict names the value that no guard checks, not the backend."""
    _, calls = compared("defects.py")
    first, second = (each for each in calls if each["function"] == "Switched.forward")
    assert first["same"]
    assert "self.flag was False" in second["verdict"]
    assert "and is True now" in second["verdict"]
    assert second["stage"] == "Dynamo"


def test_gradients_are_compared_in_the_programs_own_backward_pass() -> None:
    """A training program's verdict rests on its backward pass; what has none says so."""
    _, calls = compared("training.py")
    through = [each for each in calls if "the program's backward pass" in each.get("evidence", ())]
    others = [each for each in calls if each not in through]
    assert len(through) >= 60
    assert {each["function"] for each in others} == {"passed_on"}


OPTIMIZER = """
import torch

def wrong(graph, inputs):
    for node in graph.graph.nodes:
        if node.target == "lerp_":
            node.args = (node.args[0], node.args[1], 0.3)
    graph.recompile()
    return graph.forward

parameter = torch.nn.Parameter(torch.randn(4, 4))
optimizer = torch.optim.AdamW([parameter], lr=torch.tensor(1e-3))
step = torch.compile(optimizer.step, backend=wrong)
for _ in range(2):
    parameter.grad = torch.randn(4, 4)
    step()
"""


def test_a_wrong_step_of_an_optimizer_is_the_backends(tmp_path: Path) -> None:
    """Its graph owns the parameters and the optimizer's state, and returns nothing. A right step is the same."""
    program, right = tmp_path / "training.py", tmp_path / "right.py"
    program.write_text(OPTIMIZER, encoding="utf-8")
    right.write_text(OPTIMIZER.replace("backend=wrong", "backend='eager'"), encoding="utf-8")
    _, calls = compared(str(right))
    assert [each["same"] for each in calls] == [True, True]
    _, calls = compared(str(program))
    assert [each["stage"] for each in calls] == ["wrong"] * len(calls)
    for each in calls:
        assert each["operation"] == "lerp_"
        assert Path(each["path"]).name == "adam.py"
        assert "with other contents: largest difference" in each["verdict"]
