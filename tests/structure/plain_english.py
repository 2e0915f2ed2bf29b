"""Finds phrases that CONTRIBUTING.md replaces, in texts for users, and in docstrings and comments of code and tests.

``python -m tests.structure.plain_english`` prints each place.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tests.structure.sources import ROOT, adapter_modules, guides

EXTENSION = ROOT / "vscode-extension"
LONGEST_SENTENCE = 25

# Each phrase, and its replacement.
BANNED = {
    r"(?<![`=])\b(?:tells|told|telling)\b(?!`)": "reports, says, identifies, distinguishes",
    r"(?<!`)\bmoments?\b(?!`)": "snapshot, of a trace; otherwise the event",
    r"\blegs?\b": "attempt",
    r"\bstrangers?\b": "unauthenticated connection; a person of unknown origin",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\b(?:it is|they are|which is|that is|that are) (?-i:none)\b": "it is not an X",
    r"(?:is|are) no more\b": "no longer is",
    r"none any more": "is gone",
    r"c[oa]mes? (?:to|upon) (?:a|the|its|that|this) (?:line|stop|breakpoint|instruction)": "reaches",
    r"\b(?:becomes|became|comes|came) of": "result, effect",
    r"\b(?:takes?|took|taken) (?:it |them |that )?back\b": "revert",
    r"\bput back\b": "restore",
    r"(?:that|which|what) the cache (?:serves|served)": "cached call",
    r"\bstands?-ins?\b": "placeholder",
    r"\bWhose: ": "Cause: ",
    r"\banother than\b": "differs from",
    r"\bjourneys?\b": "history",
    r"\btraced once more\b": "replayed",
    r"\bkept traces?\b": "saved trace",
    r"\b(?:is|are) not to (?:be|end|stop)\b": "must not",
    r"\bNothing armed\b": "no breakpoint set",
    r"\b(?:has|have) \w+ forgotten\b": "forget",
    r"\bfor what there is\b": "if there is",
    r"\bRaised by who\b": "the actor",
    r"\bWhat (?:stops|moves|goes) who\b": "the actor",
    r"\bwhat is wanted of\b": "the request",
    r"\b(?:is|are|was|were|something|what is) armed\b": "set, of breakpoints; on, of filters",
    r"\bc(?:o|a)mes? to (?:its|an) end\b": "ends",
    r"\b(?:had|have|has|can|may|that it|a call|the trace) comes? to (?:a|the|its|that|this|no)\b": "reaches",
    r"\brooms\b": "packages",
    r"^See ``": "what it does",
    r"\bcame to (?:its|this|that|the) (?:line|stop)": "reached",
    r"\b(?:no|none|nobody|nothing) (?:\w+ ){0,2}any more\b": "no longer",
    r"(?<!there )\b(?:is|are) no (?!longer|use|way|such|overhead|other|business|growth|need|more)[a-z]": "is not a",
    r"\bwhoever\b": "the actor",
    r"\bfor a person\b": "readable",
    r"\bonce more\b": "again; replays, of a call",
    r"\band (?:its|the|their) like\b": "similar ones, or name them",
    r"\b(?:is|are|was|were) to (?:be|run|stop|end|go|come)\b": "must, will, or an active verb",
    r"\b(?:by|to|for) who\b": "the actor",
    r"\bas (?:it|they) comes?\b": "dynamic, of sizes; at once",
    r"\bforet(?:old|ells?|elling)\b": "predicted",
    r"\bc[ao]mes? about\b": "is created, is made",
    r"\bany more\b": "no longer, or leave it out",
    r"\bso many\b": "at most, the most, the number of",
    r"\b(?:the same|do the same) with\b|^Do the same\b|^The same\.": "the noun or the verb",
    r"\bsome \d": "about",
    r"\bthe past\b": "history, an earlier state",
    r"\baims?\b(?=[ ,.])(?! (?:at|for|to)\b)": "target",
    r"\b(?:code|line|frame|function|step|jump)s? of the user\b(?!')": "user code, user line",
    r"\b(?:is|are|was|were) to (?:wait|give|take)\b": "must, will, or an active verb",
    r"(?:(?<=[.] )|^)(?:Any|One|Main|Held|Tracing|Compiling|Reader|Held tracing) (?:thread|process)[.;]": "Runs on",
    r"(?:(?<=[.] )|^)(?:Pure|Structs)[.;]": "It has no side effects, or the structs are for any thread",
    r"\bin place of\b": "instead of",
    r"\blook(?:s|ed|ing) at\b": "reads, checks, inspects",
    r"\bg(?:ives?|ave|iven|iving)(?: \w+)? up\b": "abandons or skips, of a trace; cancels",
    r"\bgo(?:es|ing)? on\b(?! (?:a|the)\b)": "continues, resumes",
    r"\b[Nn]one for none\b|\b(?:None|False|nothing) without one\b|\bone (?:that|which) has none\b": "if there is none",
    r"[;,] any thread[.]": "Runs on any thread",
    r"(?:(?<=[.] )|^)(?-i:For) the life of": "Lasts for the life of",
    r"\bstands (?:beside|ready)\b": "is shown beside, is ready",
    r"\b(?:is|are) not as torch writes\b": "is not in torch's format",
}
# Earlier texts for users, which were replaced.
OLD_TEXTS = (
    "Find the Stage That Is Wrong",
    "Minify What Fails",
    "Take All Patches of Generated Code Back",
    "Keep What If for This Call",
    "Compare with What If",
    "Show How an Assistant Starts",
    "Run Back to Where It Was",
    "Failures of the Backend",
    "Graph Breaks That Are Errors",
    "Compiled Differs",
    "Stop when a guard is asked for",
    "what is the least that fails",
    "How is a run",
    "nodes are left",
    "The language server that tries fixes does not run",
    "needs the package dynamo-dap in the environment",
    "What becomes of a call",
    "Where a call stops that the cache",
    "Where the program's input and output are",
    "is done by those that are held at the same line",
    "run one by one on what the call was given",
    "does not return what Dynamo's graph gives",
    "a decomposition's that Inductor asks for",
    "as often as its setting",
    "Dynamo traces functions only",
    "serves cannot be stopped in",
    "What the debugger needs is looked for",
    "In an environment of your own, install the package",
    "nothing paid",
    "The source of such a frame is what Dynamo generated",
    "Have this call run what comes of",
    "says how a run is",
    "what the profiler took of it",
    "if they came and went at each step",
    "the lines of the call that differs are compared here",
    "No log message has printed a number",
)
_BANNED = {re.compile(phrase, re.IGNORECASE): better for phrase, better in BANNED.items()}


@dataclass(frozen=True)
class Text:
    """A text that people read, with its place."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {' '.join(self.text.split())[:100]}"


def banned_in(texts: Iterator[Text]) -> Iterator[str]:
    """Return each banned phrase in ``texts``, with its place and its replacement."""
    for text in texts:
        plain = " ".join(text.text.split())
        place = f"{text.path.relative_to(ROOT)}:{text.line}"
        for old in OLD_TEXTS:
            if old in plain:
                yield f"{place}: {old!r}: write the text that replaced it"
        for phrase, better in _BANNED.items():
            for found in phrase.finditer(plain):
                yield f"{place}: {found[0]!r}: write {better!r}"


def messages_in_python(path: Path) -> Iterator[Text]:
    """Return the strings of a module with several words, without its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node) for node, _ in _docstrings(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstrings.add(id(node.value))  # A text below an attribute.
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            pieces = [part.value if isinstance(part, ast.Constant) else "x" for part in node.values]
            text = "".join(piece for piece in pieces if isinstance(piece, str))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | parts:
            text = node.value
        else:
            continue
        if len(text.split()) > 2:
            yield Text(path, node.lineno, text)


def explanations_in_python(path: Path) -> Iterator[Text]:
    """Return a module's docstrings and comments."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    for node, line in _docstrings(tree):
        yield Text(path, line, str(node.value))
    docstrings = {id(node) for node, _ in _docstrings(tree)}
    for statement in ast.walk(tree):
        text = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(text, ast.Constant) and isinstance(text.value, str) and id(text) not in docstrings:
            yield Text(path, text.lineno, text.value)  # Below an attribute.
    block: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if block and token.start[0] != block[-1][0] + 1:
            yield _joined(path, block)
            block = []
        block.append((token.start[0], token.string.lstrip("# ")))
    if block:
        yield _joined(path, block)


def _joined(path: Path, block: list[tuple[int, str]]) -> Text:
    return Text(path, block[0][0], " ".join(text for _, text in block))


def _docstrings(tree: ast.Module) -> Iterator[tuple[ast.Constant, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if ast.get_docstring(node, clean=False) and isinstance(first, ast.Expr):
                assert isinstance(first.value, ast.Constant)
                yield first.value, first.lineno


def messages_in_typescript(path: Path) -> Iterator[Text]:
    """Return the strings of a TypeScript file with several words, without its comments."""
    source = re.sub(r"/\*.*?\*/", lambda match: "\n" * match[0].count("\n"), path.read_text("utf-8"), flags=re.DOTALL)
    for number, line in enumerate(source.splitlines(), start=1):
        code = re.sub(r"(?<!:)//.*", "", line)
        for found in re.finditer(r'"((?:[^"\\]|\\.)*)"|`((?:[^`\\]|\\.)*)`', code):
            text = found[1] or found[2] or ""
            if len(text.split()) > 2:
                yield Text(path, number, text)


def messages_of_the_extension() -> Iterator[Text]:
    """Return every text of ``package.json`` and of the catalogue of its texts."""
    for name in ("package.json", "package.nls.json"):
        path = EXTENSION / name
        if path.is_file():
            for text in _strings(json.loads(path.read_text(encoding="utf-8"))):
                yield Text(path, 1, text)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
    elif isinstance(value, str) and len(value.split()) > 2:
        yield value


def prose_of_pages() -> Iterator[Text]:
    """Return the paragraphs of the pages, without code."""
    pages = [*guides(), *sorted((EXTENSION / "media").glob("*.md"))]
    pages += [
        ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "SUPPORT.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md")
    ]
    pages += [EXTENSION / name for name in ("README.md", "CHANGELOG.md")]
    for page in pages:
        source = page.read_text(encoding="utf-8")
        source = re.sub(r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), source, flags=re.DOTALL | re.MULTILINE)
        source = re.sub(r"`[^`\n]*`", "`x`", source)
        line = 1
        for paragraph in re.split(r"(\n\n+)", source):
            if paragraph.strip():
                yield Text(page, line, paragraph)
            line += paragraph.count("\n")


def user_texts() -> Iterator[Text]:
    """Return every text that users read."""
    for module in adapter_modules():
        yield from messages_in_python(module.path)
    for path in sorted((EXTENSION / "src").rglob("*.ts")):
        yield from messages_in_typescript(path)
    yield from messages_of_the_extension()
    yield from prose_of_pages()


def explanations_in_typescript(path: Path) -> Iterator[Text]:
    """Return a TypeScript file's comments."""
    source = path.read_text(encoding="utf-8")
    for found in re.finditer(r"/\*.*?\*/|(?:^[ \t]*//[^\n]*\n)+", source, re.DOTALL | re.MULTILINE):
        text = re.sub(r"^\s*(?:/\*+|\*/?|//)", "", found[0], flags=re.MULTILINE)
        yield Text(path, source.count("\n", 0, found.start()) + 1, text)


def explanations() -> Iterator[Text]:
    """Return every docstring and comment."""
    for module in adapter_modules():
        yield from explanations_in_python(module.path)
    for path in sorted(chain((ROOT / "tests").rglob("*.py"), (ROOT / "release").rglob("*.py"))):
        if "node_modules" not in path.parts and path != Path(__file__):
            yield from explanations_in_python(path)
    for number, line in enumerate((ROOT / "Makefile").read_text(encoding="utf-8").splitlines(), start=1):
        if "# " in line:
            yield Text(ROOT / "Makefile", number, line.partition("# ")[2])
    for folder in (EXTENSION / "src", ROOT / "tests" / "vscode"):
        for path in sorted(folder.rglob("*.ts")):
            if "node_modules" not in path.parts:
                yield from explanations_in_typescript(path)


def long_sentences(texts: Iterator[Text]) -> Iterator[str]:
    """Return the sentences with more than ``LONGEST_SENTENCE`` words."""
    for text in texts:
        plain = re.sub(r"`[^`]*`|\{[^}]*\}|\[[^\]]*\]\([^)]*\)", "x", text.text)
        for sentence in re.split(r"[.:;!?](?:\s|$)|\n", plain):
            if len(words := sentence.split()) > LONGEST_SENTENCE:
                yield f"{text}: {len(words)} words"


if __name__ == "__main__":
    for line in banned_in(chain(user_texts(), explanations())):
        print(line)  # noqa: T201 - what the command is for
