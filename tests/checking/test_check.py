"""``dynamo-dap check`` on real programs: limits, baselines, settings, and what it writes for services."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from dynamo_dap.checking.findings import findings_in
from dynamo_dap.checking.settings import WrongSettings, settings_of_project
from dynamo_dap.commands.check import main
from dynamo_dap.records.events import Record
from dynamo_dap.records.model import SkippedFrame
from tests.client.timeline import DEADLINE
from tests.client.zygote import python
from tests.language_server.test_library_models import LIBRARY
from tests.language_server.test_library_models import PROGRAM as USES_LIBRARY

PROGRAM = """
import torch

def helper(x):
    print("in it")
    return x + 1

class Model(torch.nn.Module):
    def forward(self, x, n):
        if x.sum() > 0:
            x = x * 2
        return helper(x) * n

@torch.compile(backend="eager")
def fine(x):
    return x + 1

model = torch.compile(Model(), backend="eager")
for n in range(3):
    model(torch.ones(3 + n), n)
fine(torch.ones(3))
print("the program's own output")
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def check(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # The interpreter that has torch already, unless the test is about that.
    interpreter = [] if "--python" in arguments else ["--python", *python()]
    command = [sys.executable, "-m", "dynamo_dap", "check", *interpreter, *arguments]
    variables = {name: value for name, value in os.environ.items() if name != "GITHUB_ACTIONS"}
    return subprocess.run(
        command, cwd=folder, env={**variables, **environment}, capture_output=True, text=True, timeout=200, check=False
    )


def recorded(folder: Path) -> Path:
    """Run ``program.py`` in a folder, and return its record."""
    run = [sys.executable, "-m", "dynamo_dap", "run", "--python", *python(), "program.py"]
    environment = {**os.environ, "DYNAMO_DAP_RECORDS": str(folder / "records")}
    subprocess.run(run, cwd=folder, env=environment, capture_output=True, timeout=DEADLINE, check=True)
    (record,) = (folder / "records").rglob("*.jsonl")
    return record


def test_without_limits_nothing_may_break_or_recompile(program: Path) -> None:
    ran = check(program.parent, "program.py")
    assert ran.returncode == 1, ran.stderr
    assert "program.py:5  Graph break: Failed to trace" in ran.stdout
    assert "operator, in helper" in ran.stdout
    assert "program.py:10  Graph break: Data-dependent branching, in Model.forward" in ran.stdout
    assert "hint (not tried): Use `torch.cond`" in ran.stdout
    assert "2 graph breaks; the limit is 0" in ran.stdout
    assert "recompiles; the limit is 0" in ran.stdout
    assert "the program's own output" in ran.stdout


def test_limits_of_the_program_and_of_functions(
    program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a record that is there already: nothing is run, and what is found is the same."""
    folder = program.parent
    record = recorded(folder)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)

    def checked(*limits: str) -> tuple[int, dict[str, Any]]:
        status = main(["--record", str(record), "--json", *limits])
        return status, json.loads(capsys.readouterr().out)

    status, report = checked()
    assert (status, report["breaks"], report["programStatus"]) == (1, 2, None)
    recompiles, graphs = report["recompiles"], report["graphs"]
    assert recompiles >= 2
    for within in (
        ("--max-breaks", "2"),
        ("--max-recompiles", str(recompiles)),
        ("--max-graphs", str(graphs)),
        ("--max-compile-seconds", "1000"),
        ("--function", "Model.*:max-breaks=2", "--function", "fine:max-graphs=1"),
    ):
        assert checked(*within)[0] == 0, within
    for above, problem, kinds in (
        (("--max-breaks", "1"), "2 graph breaks; the limit is 1", {"graph break"}),
        (("--max-recompiles", "1"), f"{recompiles} recompiles; the limit is 1", {"recompile"}),
        (("--max-graphs", "3"), f"{graphs} graphs; the limit is 3", {"graph break", "recompile"}),
        (("--max-compile-seconds", "0.0001"), "s of compiling; the limit is 0.0001 s", set()),
        (("--function", "Mod*:max-breaks=1"), "Model.forward: 2 graph breaks; the limit is 1", {"graph break"}),
        (("--function", "fine:max-graphs=0"), "fine: 1 graph; the limit is 0", set()),
    ):
        status, report = checked(*above)
        assert status == 1, above
        assert len(report["problems"]) == 1
        assert problem in report["problems"][0]
        assert {one["kind"] for one in report["new"]} == kinds, "what is to blame is told, and nothing else"

    # The same in the settings of a project, which the command line goes before.
    (folder / "pyproject.toml").write_text(
        f"[tool.dynamo-dap]\nmax-breaks = 2\nmax-recompiles = {recompiles}\nmax-graphs = {graphs}\n"
        'max-compile-seconds = 1000\n[tool.dynamo-dap.functions."Model.*"]\nmax-breaks = 1\n'
    )
    status, report = checked()
    assert status == 1
    assert [problem.partition(" graph breaks")[0] for problem in report["problems"]] == ["Model.forward: 2"]
    assert checked("--function", "Model.*:max-breaks=2")[0] == 0
    assert checked("--function", "Model.*:max-breaks=2", "--max-graphs", "1")[0] == 1


def test_a_baseline_accepts_what_was_there_when_lines_move(program: Path) -> None:
    folder = program.parent
    written = check(folder, "--baseline", "accepted.json", "--update", "program.py")
    assert written.returncode == 0, written.stdout + written.stderr
    accepted = json.loads((folder / "accepted.json").read_text())["findings"]
    assert {"kind": "graph break", "function": "helper", "reason": "Failed to trace builtin operator"} in accepted

    # The same at other lines, and in the settings of a project.
    program.write_text("# a new line\n\n" + PROGRAM)
    (folder / "pyproject.toml").write_text('[tool.dynamo-dap]\nbaseline = "accepted.json"\n')
    ran = check(folder, "program.py")
    assert ran.returncode == 0, ran.stdout
    assert "accepted by the baseline" in ran.stdout

    # The same reason again in the same function, and another function: both are new.
    program.write_text(
        PROGRAM.replace('    print("in it")\n', '    print("in it")\n    x = x * 3\n    print("again")\n').replace(
            "def fine(x):\n", "def fine(x):\n    torch._dynamo.graph_break()\n"
        )
    )
    ran = check(folder, "--json", "program.py")
    assert ran.returncode == 1
    report = json.loads(ran.stdout)
    assert {(one["function"], one["line"]) for one in report["new"]} == {("helper", 5), ("helper", 7), ("fine", 18)}
    assert report["ok"] is False
    assert report["programStatus"] == 0
    assert "the program's own output" in ran.stderr, "what is printed is JSON alone"

    # What was fixed is reported, and leaves the baseline when that is asked for.
    program.write_text(PROGRAM.replace('    print("in it")\n', ""))
    ran = check(folder, "program.py")
    assert ran.returncode == 0
    assert "1 finding of the baseline is gone" in ran.stdout
    assert check(folder, "--update", "program.py").returncode == 0
    assert "helper" not in (folder / "accepted.json").read_text()


@pytest.mark.parametrize("way", ["above", "absolute", "link"])
def test_a_project_names_no_baseline_outside_itself(tmp_path: Path, way: str) -> None:
    """A project from another user would have any file of the user's written otherwise."""
    victim, folder = tmp_path / "victim.txt", tmp_path / "project"
    folder.mkdir()
    (folder / "link.json").symlink_to(victim)
    name = {"above": "../victim.txt", "absolute": str(victim), "link": "link.json"}[way]
    (folder / "pyproject.toml").write_text(f"[tool.dynamo-dap]\nbaseline = {json.dumps(name)}\n")
    with pytest.raises(WrongSettings, match="outside the project"):
        settings_of_project(folder)
    (folder / "pyproject.toml").write_text('[tool.dynamo-dap]\nbaseline = "sub/../fine.json"\n')
    assert settings_of_project(folder).baseline == str(folder / "sub/../fine.json")


def test_functions_that_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\n\n"
        "def skipped(x):\n    with torch.no_grad():\n        torch._dynamo.graph_break()\n    return x\n\n"
        "def generator(x):\n    yield x\n\n"
        'torch.compile(skipped, backend="eager")(torch.ones(3))\n'
        'list(torch.compile(generator, backend="eager")(torch.ones(3)))\n'
    )
    assert check(tmp_path, "--max-breaks", "5", "program.py").returncode == 0
    ran = check(tmp_path, "--no-skips", "program.py")
    assert ran.returncode == 1
    assert "is not compiled" in ran.stdout


def test_reasons_of_skipped_functions_name_no_folder() -> None:
    """They are a part of the baseline, which another machine reads."""
    record = Record()
    record.skipped = [SkippedFrame("helper", "skipped by '/srv/project/rules.py', see https://a.org/b/c")]
    (finding,) = findings_in([record], None).findings
    assert finding.reason == "skipped by 'rules.py', see https://a.org/b/c"


def test_sarif_junit_and_annotations(program: Path) -> None:
    folder = program.parent
    ran = check(folder, "--sarif", "out.sarif", "--junit", "out.xml", "program.py", GITHUB_ACTIONS="true")
    assert ran.returncode == 1

    jsonschema = pytest.importorskip("jsonschema", reason="SARIF is checked by its schema: pip install jsonschema")
    # The schema of OASIS, as Microsoft publishes it under the MIT licence in the npm package @microsoft/jest-sarif.
    schema = json.loads(Path(__file__).with_name("sarif-2.1.0-rtm.5.json").read_text())
    sarif = jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker())
    log = json.loads((folder / "out.sarif").read_text())
    problems = [f"{problem.json_path}: {problem.message}" for problem in sarif.iter_errors(log)]
    assert not problems, problems
    results = log["runs"][0]["results"]
    physical = [result["locations"][0]["physicalLocation"] for result in results]
    places = {(one["artifactLocation"]["uri"], one["region"]["startLine"]) for one in physical}
    assert {("program.py", 5), ("program.py", 10)} <= places
    assert any("\nHint (not tried): Use `torch.cond`" in result["message"]["text"] for result in results)
    fingerprints = [json.dumps(result["partialFingerprints"]) for result in results]
    assert len(set(fingerprints)) == len(fingerprints)
    results[0]["location"] = results[0].pop("locations")
    assert list(sarif.iter_errors(log)), "the schema knows what it does not have"

    suite = ET.fromstring((folder / "out.xml").read_text())[0]
    assert suite.get("failures") == str(len(suite.findall("testcase/failure")))
    failed = {case.get("name") for case in suite if case.find("failure") is not None}
    assert {"helper", "Model.forward", "the program"} <= failed
    assert "fine" not in failed

    lines = [line for line in ran.stdout.splitlines() if line.startswith("::error")]
    assert any(line.startswith("::error file=program.py,line=5,title=torch.compile%3A graph break::") for line in lines)
    assert any("the limit is 0" in line for line in lines)
    assert not any(line.startswith("::error") for line in check(folder, "program.py").stdout.splitlines())


@pytest.mark.parametrize(
    ("settings", "arguments", "expected"),
    [
        ("max-brakes = 1", ["program.py"], "no setting max-brakes; did you mean max-breaks?"),
        ('max-breaks = "many"', ["program.py"], "Expected `int | null`, got `str`"),
        ('functions = {"*" = {max-steps = 1}}', ["program.py"], '[tool.dynamo-dap.functions."*"]'),
        ("= 1", ["program.py"], "cannot read"),
        ("[[tool.dynamo-dap]]\nmax-breaks = 1", ["program.py"], "is not a table"),
        ("", ["--function", "Model.*", "program.py"], "--function takes PATTERN:LIMIT=N"),
        ("", ["missing.py"], "missing.py does not exist"),
        ("", ["--python", "/nowhere/python", "program.py"], "cannot run /nowhere/python"),
        ("", ["--record", "missing.jsonl"], "missing.jsonl"),
        ("", ["empty.py"], "nothing was compiled"),
        ("", ["--max-breaks", "9", "--sarif", "nowhere/out.sarif", "program.py"], "cannot write nowhere/out.sarif"),
        ('baseline = "program.py"', ["program.py"], "cannot read the baseline"),
        ('baseline = "settings.json"', ["--update", "program.py"], "cannot read the baseline"),
    ],
)
def test_wrong_usage_is_reported(program: Path, settings: str, arguments: list[str], expected: str) -> None:
    begin = "" if settings.startswith("[") else "[tool.dynamo-dap]\n"
    (program.parent / "pyproject.toml").write_text(f"{begin}{settings}\n")
    (program.parent / "empty.py").write_text("print('nothing')\n")
    (program.parent / "settings.json").write_text("{}")
    ran = check(program.parent, *arguments)
    assert ran.returncode == 2, ran.stdout
    assert expected in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_program_that_fails_keeps_its_status(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM + "\nraise SystemExit(7)\n")
    ran = check(tmp_path, "-m", "program")
    assert ran.returncode == 7
    assert "the program ended with exit status 7" in ran.stdout
    assert "Data-dependent branching" in ran.stdout


WITH_CHILDREN = """
import multiprocessing, os, signal, subprocess, sys

def compile_and_break(x):
    import torch
    torch._dynamo.graph_break()
    return x + 1

def started():
    import torch
    torch.compile(compile_and_break, backend="eager")(torch.ones(3))

def forked():
    import torch
    def inside(x):
        print("forked")
        return x * 2
    torch.compile(inside, backend="eager")(torch.ones(3))

def killed():
    import torch
    torch.compile(lambda x: x + 5, backend="eager")(torch.ones(3))
    os.kill(os.getpid(), signal.SIGKILL)

class Data:
    def __len__(self):
        return 1

    def __getitem__(self, index):
        import torch
        def loaded(x):
            torch._dynamo.graph_break()
            return x - 1
        return torch.compile(loaded, backend="eager")(torch.ones(3))

if __name__ == "__main__":
    if sys.argv[1:] == ["script"]:
        import torch
        def script(x):
            torch._dynamo.graph_break()
            return x - 2
        torch.compile(script, backend="eager")(torch.ones(3))
        sys.exit(5)
    for method, function in (("spawn", started), ("forkserver", started), ("fork", forked), ("fork", killed)):
        process = multiprocessing.get_context(method).Process(target=function)
        process.start()
        process.join()
        print(method, process.exitcode)
    import torch
    print(*torch.utils.data.DataLoader(Data(), num_workers=1))
    print("script", subprocess.run([PYTHON, __file__, "script"]).returncode)
    print("other", subprocess.run([sys.executable, "-c", "import sys; print(sys.argv)", "it"], check=True).returncode)
"""


def test_what_child_processes_compile_counts(tmp_path: Path) -> None:
    """However they are made; the program is as it was, and one that was killed is reported."""
    program = tmp_path / "program.py"
    (interpreter,) = python()
    program.write_text(WITH_CHILDREN.replace("PYTHON", repr(interpreter)))
    ran = check(tmp_path, "--max-breaks", "0", "--json", "program.py")
    assert ran.returncode == 1, ran.stderr
    for expected in (
        "spawn 0",
        "forkserver 0",
        "fork 0",
        "fork -9",
        "tensor([[0., 0., 0.]])",
        "script 5",
        "['-c', 'it']",
    ):
        assert expected in ran.stderr
    report = json.loads(ran.stdout)
    assert {(one["function"], one["line"]) for one in report["new"]} == {
        ("compile_and_break", 6),
        ("forked.<locals>.inside", 16),
        ("Data.__getitem__.<locals>.loaded", 32),
        ("script", 40),
    }
    assert report["breaks"] == 4, "the same line of two processes is one"
    processes = report["processes"]
    assert len({one["id"] for one in processes}) == len(processes) == 6
    (lost,) = [one for one in processes if not one["ended"]]
    assert f"process {lost['id']} ({program.name}) was killed or still runs" in ran.stderr
    assert any(one["program"] == f"{program} script" for one in processes)


def test_what_happens_in_a_library_is_shown_at_the_users_line(tmp_path: Path) -> None:
    """The library's line comes below: nobody looks for a finding in an installed package, or edits it there."""
    package = tmp_path / "site-packages" / "somelib"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "modeling.py").write_text(LIBRARY)
    (tmp_path / "program.py").write_text(USES_LIBRARY.format(site=str(package.parent)))
    found = json.loads(check(tmp_path, "--json", "program.py").stdout)["new"]
    program, text = tmp_path / "program.py", "output = model.generate(torch.ones(1, 4))  #@called"
    called = USES_LIBRARY.format(site="").splitlines().index(text) + 1
    assert {one["kind"] for one in found} == {"graph break", "recompile"}
    for one in found:
        assert (one["path"], one["line"], one["function"]) == ("program.py", called, "Model.forward")
        assert one["details"][0].startswith("in the library, at modeling.py:")
        assert str(tmp_path) not in one["reason"]

    record = recorded(tmp_path)
    report = [sys.executable, "-m", "dynamo_dap", "report", str(record)]
    printed, page = (
        subprocess.run([*report, *options], capture_output=True, text=True, timeout=DEADLINE, check=True).stdout
        for options in ([], ["--html", "--no-browser"])
    )
    lines = [line.strip() for line in printed.partition("What to do")[2].splitlines()]
    places = [line for line in lines if line.startswith(("at ", "guarded ", "in the library"))]
    shown = re.findall(r"<p class='place'>(.*?) <span title='(.*?)'", Path(page.strip()).read_text(encoding="utf-8"))
    library = str(package / "modeling.py")
    for number, word in enumerate(("at", "guarded")):
        (first, below), page_rows = places[2 * number : 2 * number + 2], shown[2 * number : 2 * number + 2]
        assert first == f"at {program}:{called}  {text}"
        assert below.startswith(f"in the library, {word} {library}:")
        assert [where for where, _ in page_rows] == ["At", f"In the library, {word}"]
        assert [title.rpartition(":")[0] for _, title in page_rows] == [str(program), library]
