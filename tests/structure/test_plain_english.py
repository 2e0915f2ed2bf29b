"""Texts stay plain: no banned phrase, no endless sentence, a reason for each waiver, readable commit subjects."""

from __future__ import annotations

import ast
import re
import subprocess
from itertools import chain

import pytest

import dynamo_dap
from tests.structure import plain_english
from tests.structure.asserted_texts import long_texts
from tests.structure.plain_english import Text, banned_in, long_sentences, user_texts
from tests.structure.sources import ADAPTER, ROOT, adapter_modules

# Banned words in names of modules, classes, functions, arguments and variables.
_BANNED_IN_NAMES = frozenset(
    (
        *("arm", "armed", "arrival", "journey", "journeys", "mend", "mended", "moment", "moments"),
        *("looked", "stranger", "strangers", "tell", "tells", "told", "whoever", "wish"),
    )
)
# Banned phrases of several words, as they occur in names.
_BANNED_PHRASES_IN_NAMES = re.compile(r"(?:^|_)(?:go(?:es|ing)?_on|give_up)(?:_|$)")
# The key of version 0.2.0 for a snapshot's number is still accepted and sent.
_KEPT_NAMES = frozenset({"moment"})
# Commits before this rule keep their subjects. Unlike a commit's hash, a date works in shallow clones and rebases.
_FIRST_COMMITS = "2026-11-24T19:05:00+00:00"
_LONGEST_SUBJECT = 65
# Folders that git ignores.
_NOT_OURS = frozenset({"node_modules", "output", ".vscode-test"})
_WAIVER = re.compile(r"#\s*(?:noqa(?::\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)?|type: ?ignore(?:\[[\w,\s-]+\])?)(?P<reason>.*)$")
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
# Imperatives that end like a participle or a third person.
_VERBS = re.compile(
    r"(?:Press|Pass|Process|Address|Express|Discuss|Guess|Focus|Canvas|Alias|Bring|String|Ring|Embed|Need|Feed|Seed|Speed|Shed)$"
)


def test_texts_for_users_have_no_banned_phrase() -> None:
    assert not (found := list(banned_in(user_texts()))), "\n".join(found)


def test_explanations_have_no_banned_phrase() -> None:
    assert not (found := list(banned_in(plain_english.explanations()))), "\n".join(found)


def test_sentences_of_the_interface_are_short() -> None:
    modules = [*(ADAPTER / "dynamo_dap/commands").glob("*.py"), *(ADAPTER / "dynamo_dap/server").glob("*.py")]
    modules += [ADAPTER / "dynamo_dap/protocol/requests/options.py", *(ADAPTER / "dynamo_dap/debuggee").rglob("*.py")]
    names = re.compile(r"[A-Z0-9_ ]+")
    messages = (
        text
        for path in modules
        for text in plain_english.messages_in_python(path)
        if not names.fullmatch(" ".join(text.text.split()))
    )
    texts = chain(plain_english.messages_of_the_extension(), messages)
    assert not (found := list(long_sentences(texts))), "\n".join(found)


def test_banned_phrases_and_long_sentences_are_found() -> None:
    path = ROOT / "README.md"
    assert len(list(banned_in(iter([Text(path, 1, "the user is told\nof it by calls that the cache serves")])))) == 2
    for faulty in (
        "Up to so many sizes.",
        "Reads it. Any thread.",
        "Do the same with one output.",
        "it misses its aim.",
        "The call goes on.",
        "Its name; None for none.",
        "Pure text; any thread.",
        "Hooks it. For the life of the process.",
    ):
        assert list(banned_in(iter([Text(path, 1, faulty)]))), faulty
    assert not list(banned_in(iter([Text(path, 1, "Runs on any thread. The same class serves every end.")])))
    assert list(long_sentences(iter([Text(path, 1, "word " * 26)])))
    assert not list(long_sentences(iter([Text(path, 1, "word " * 20 + "end. " + "word " * 20)])))


def test_docstrings_of_functions_begin_with_a_verb_phrase() -> None:
    """They must not begin with a parameter's name or an example, which ruff (D401) accepts."""
    found = []
    for module in adapter_modules():
        for node in ast.walk(ast.parse(module.path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = ast.get_docstring(node) or "A"
                if not docstring[0].isupper():
                    found.append(f"{module.path.relative_to(ROOT)}:{node.lineno}: {docstring[:60]}")
    assert not found, "\n".join(found)


def test_each_error_that_a_docstring_names_has_a_line_of_its_own() -> None:
    in_one_line = re.compile(r"Raises:[ \t]+[A-Z]\w+:")
    found = [str(module.path) for module in adapter_modules() if in_one_line.search(module.path.read_text("utf-8"))]
    assert not found, "\n".join(found)


def test_names_follow_the_glossary() -> None:
    paths = [*(module.path for module in adapter_modules()), *sorted((ROOT / "tests").rglob("*.py"))]
    found = []
    for path in paths:
        if _NOT_OURS.isdisjoint(path.relative_to(ROOT).parts):
            text = path.read_text(encoding="utf-8")
            kept = _KEPT_NAMES if path.name == "contract.py" else frozenset()
            found += [f"{path.relative_to(ROOT)}: {name}" for name in _unclear_names(path.stem, text) - kept]
    assert not found, "\n".join(found)


def _unclear_names(module: str, text: str) -> set[str]:
    """Return the module's name, and the names in it, that contain a banned word."""
    names = {module}
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
    found = set()
    for name in names:
        words = _WORD.sub("_", name).lower()
        if _BANNED_IN_NAMES & set(re.findall(r"[a-z]+", words)) or _BANNED_PHRASES_IN_NAMES.search(words):
            found.add(name)
    return found


def test_unclear_names_are_found() -> None:
    text = "class Journey:\n    def arm(self, told):\n        self.moment = aStranger = 1\nalarm = 2\n_goesOn = 3\n"
    assert _unclear_names("arrival", text) == {"arrival", "Journey", "arm", "told", "moment", "aStranger", "_goesOn"}
    assert not _unclear_names("alarms", "def armada(mementos, ergo_onset): pass")


def test_each_waiver_has_its_own_reason() -> None:
    """``noqa`` and ``type: ignore`` have the reason on their line: "as above" may become wrong after an edit."""
    missing = []
    for module in adapter_modules():
        for number, line in enumerate(module.path.read_text(encoding="utf-8").splitlines(), start=1):
            waiver = _WAIVER.search(line)
            if waiver and (len(waiver["reason"].split()) < 2 or re.search(r"(?:as|see) (?:above|below)", waiver[0])):
                missing.append(f"{module.path.relative_to(ROOT)}:{number}: {waiver[0]}")
    assert not missing, "\n".join(missing)


def test_assertions_hold_a_short_phrase_and_no_prose() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: assert an id, a field or a phrase of at most six words: {text}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if _NOT_OURS.isdisjoint(path.relative_to(ROOT).parts)
        for line, text in long_texts(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("statement", "is_long"),
    [
        ('assert "the call hits the cache and so" in text', True),
        ('assert text == f"the call of {name} hits the cache and so"', True),
        ('assert text.startswith("the call hits the cache and so")', True),
        ('assert texts == ["short", {"a": "the call hits the cache and so"}]', True),
        ('pytest.raises(ValueError, match="the call hits the cache and so")', True),
        ('assert "the call hits the cache" in text', False),
        ('assert "call 3 of fn [0/1] at a.py:7 x == 2" in text', False),
        ('assert "the call hits the cache and so" in text  # whole text: the help says it', False),
        ('assert "the call hits the cache and so" in text  # whole text:', True),
        ('print("the call hits the cache and so")', False),
    ],
)
def test_long_assertions_are_found(statement: str, is_long: bool) -> None:
    assert bool(list(long_texts(statement))) is is_long


def test_the_changelog_is_cut_into_versions_with_short_entries() -> None:
    """The newest version is this one, newer entries are unreleased, and each is one line of at most 120 characters."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    newest = next(heading for heading in headings if heading != "Unreleased")
    assert headings.index(newest) <= 1
    assert re.fullmatch(rf"{re.escape(dynamo_dap.__version__)} \(\d{{4}}-\d\d-\d\d\)", newest)
    released = text.partition(newest)[2]
    assert set(re.findall(r"^### (.+)$", released, re.MULTILINE)) <= {"Added", "Changed", "Fixed"}
    entries = re.findall(r"^- .*(?:\n {2}.*)*", text, re.MULTILINE)
    assert not [entry for entry in entries if "\n" in entry or len(entry) > 120]
    assert len(entries) == len(set(entries)), "an entry stands twice: was a conflict resolved with both sides?"


def test_pages_about_a_task_lead_with_an_example_and_end_with_limits() -> None:
    pages = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("- How to:")[2].partition("- Reference:")[0]
    names = re.findall(r"([\w-]+\.md)", pages)
    assert len(names) > 10
    for name in names:
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        example = re.search(r"^(?:```|\||!\[|<picture)", text, re.MULTILINE)
        assert example, name
        assert text.count("\n", 0, example.start()) < 12, f"{name}: show a command, a picture or a table first"
        headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert "Limits" not in headings[:-1], f"{name}: limits come last"


def test_subjects_of_new_commits_are_short_and_imperative() -> None:
    command = ["git", "log", "--no-merges", "--format=%aI%x00%s", "-n", "300"]
    logged = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)
    if logged.returncode:
        pytest.skip("not a repository")
    commits = [line.split("\0", 1) for line in logged.stdout.splitlines()]
    wrong = [problem for date, subject in commits if date > _FIRST_COMMITS and (problem := _problem(subject))]
    assert not wrong, "\n".join(wrong)


def _problem(subject: str) -> str | None:
    first = subject.split(maxsplit=1)[0]
    if len(subject) > _LONGEST_SUBJECT:
        return f"{len(subject)} characters, at most {_LONGEST_SUBJECT}: {subject}"
    if not first[0].isupper() or subject.endswith("."):
        return f"a sentence without its period: {subject}"
    if re.search(r"(?:ed|ing|[^s]s)$", first) and not _VERBS.match(first):
        return f"begin with a verb in the imperative: {subject}"
    return None


@pytest.mark.parametrize(
    ("subject", "is_right"),
    [
        ("Reuse the saved trace for conditions", True),
        ("Pass the token to ranks", True),
        ("Fixed a hang", False),
        ("Fixes a hang", False),
        ("fix a hang", False),
        ("Fix a hang that many users of very old versions met in their own programs", False),
    ],
)
def test_problems_of_subjects_are_found(subject: str, is_right: bool) -> None:
    assert (_problem(subject) is None) is is_right
