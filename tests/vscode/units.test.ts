/** Parts of the extension that need no editor: validation of configurations, and reading Python text. */

import { expect, test } from "@playwright/test";
import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { withFile } from "../../vscode-extension/src/configuration/file-variables.js";
import { problems, type ConfigurationSchemas } from "../../vscode-extension/src/configuration/validation.js";
import { compiledDefinitions } from "../../vscode-extension/src/editor/compiled-functions.js";
import { enclosingDefinition, linesWithPresentValues, namesBoundBy, namesIn } from "../../vscode-extension/src/editor/mentioned-names.js";
import { isTestFile, testFunctions } from "../../vscode-extension/src/editor/test-functions.js";
import { extensionRoot } from "./harness/places.js";

interface Manifest {
    contributes: { debuggers: [{ configurationAttributes: ConfigurationSchemas }] };
}

async function schemas(): Promise<ConfigurationSchemas> {
    const manifest = JSON.parse(await readFile(join(extensionRoot, "package.json"), "utf8")) as Manifest;
    return manifest.contributes.debuggers[0].configurationAttributes;
}

test.describe("validation", () => {
    const good = { type: "dynamo", name: "x", request: "launch", program: "a.py" };

    test("accepts what the schema allows", async () => {
        const known = await schemas();
        expect(problems(good, known)).toEqual([]);
        expect(problems({ ...good, args: "--size 3", env: { A: null, B: "1" }, python: ["uv", "run"] }, known)).toEqual([]);
        expect(problems({ type: "dynamo", request: "attach", connect: { port: 5678 } }, known)).toEqual([]);
        expect(problems({ type: "dynamo", request: "attach", listen: { port: 5678 } }, known)).toEqual([]);
    });

    const cases: [string, object, string][] = [
        ["a mode that does not exist", { mode: "tracing" }, '"mode" must be one of "both", "compile-time", "run-time", not "tracing".'],
        ["a text where a flag belongs", { eager: "yes" }, '"eager" must be true or false, not "yes".'],
        ["a time that is not above 0", { evaluationTimeout: 0 }, '"evaluationTimeout" must be a number above 0, not 0.'],
        ["a number among the arguments", { args: ["a", 3] }, '"args[1]" must be a string, not 3.'],
        ["a number in the environment", { env: { A: 1 } }, '"env.A" must be a string or null, not 1.'],
        ["two targets", { module: "pytest" }, 'Give only one of "program" and "module".'],
        ["no target", { program: "" }, 'What to debug is missing: give one of "program", "module" and "code".'],
        ["attach without an address", { request: "attach" }, '"connect" is missing.'],
        ["a port out of range", { request: "attach", connect: { port: 70000 } }, '"connect.port" must be a whole number from 1 to 65535, not 70000.'],
        ["attach without a port", { request: "attach", connect: {} }, '"connect.port" is missing.'],
        ["an unknown request", { request: "run" }, '"request" must be "launch" or "attach".'],
    ];
    for (const [what, change, message] of cases) {
        test(`says what is wrong with ${what}`, async () => {
            expect(problems({ ...good, ...change }, await schemas())).toEqual([message]);
        });
    }
});

test("the file in front replaces variables, and values of a wrong type stay for the validation", async () => {
    const launch = { type: "dynamo", name: "x", request: "launch" };
    const whole = { ...launch, program: "${file}", args: ["--in", "${fileDirname}/a"], cwd: "${fileDirname}" };
    expect(withFile(whole, "/x/$&.py")).toEqual({ ...launch, program: "/x/$&.py", args: ["--in", "/x/a"], cwd: "/x" });
    const wrong = { ...launch, program: 5, args: ["${file}", 1], cwd: null } as never;
    expect(withFile(wrong, "/x/a.py")).toEqual({ ...launch, program: 5, args: ["/x/a.py", 1], cwd: null });
    expect(problems(withFile({ ...launch, program: 5 } as never, "/x/a.py"), await schemas())).toEqual(['"program" must be a string, not 5.']);
});

test.describe("functions under torch.compile", () => {
    const found = (text: string): [string, number, number | undefined][] =>
        compiledDefinitions(text).map(({ name, line, bodyLine }) => [name, line, bodyLine]);

    test("decorated, plain or with arguments over several lines", () => {
        expect(found("@torch.compile\ndef f(x):\n    return x")).toEqual([["f", 1, 2]]);
        expect(found('@torch.compile(\n    backend="eager",\n)\n@other\nasync def f(\n    x,\n):\n    return x')).toEqual([["f", 4, 7]]);
        expect(found("@partial(torch.compile, dynamic=True)\ndef f(x): \n    return x")).toEqual([["f", 1, 2]]);
    });

    test("with a bare name only if it was imported from torch", () => {
        expect(found("from torch import nn, compile\n@compile\ndef f(x):\n    pass")).toEqual([["f", 2, 3]]);
        expect(found("@compile\ndef f(x):\n    pass")).toEqual([]);
    });

    test("passed to torch.compile, each once", () => {
        expect(found("def f(x):\n    return x\n\ng = torch.compile(f, dynamic=True)\nh = torch.compile(f)")).toEqual([["f", 0, 1]]);
        expect(found("# torch.compile(f)\ndef f(x):\n    return x")).toEqual([]);
        expect(found("torch.compile(model.forward)")).toEqual([]);
    });

    test("for a module, the forward of its class", () => {
        const model = "class Tiny(nn.Module):\n    def __init__(self):\n        pass\n\n    def forward(self, x):\n        return x\n\n";
        for (const call of ["(model)", "(model, dynamic=True)", "(model.forward)", "(model.eval())", "(Tiny())", "(Tiny().eval())"]) {
            expect(found(`${model}model = Tiny()\ncompiled = torch.compile${call}`), call).toEqual([["Tiny", 4, 5]]);
        }
        expect(found(`${model}model = Tiny()\nmodel.compile()`)).toEqual([["Tiny", 4, 5]]);
        expect(found(`${model}model = Tiny()\ntorch.compile(model.encoder)`)).toEqual([]);
        expect(found("def make():\n    return 1\n\ntorch.compile(make())")).toEqual([]);
        expect(found(`@torch.compile\n${model}`)).toEqual([["Tiny", 5, 6]]);
        expect(found("model = load()\ntorch.compile(model)")).toEqual([]);
    });

    test("the body begins after the docstring and comments", () => {
        expect(found('@torch.compile\ndef f(x):\n    """One.\n\n    Two.\n    """\n    # why\n    return x')).toEqual([["f", 1, 7]]);
        expect(found('@torch.compile\ndef f(x):\n    """One."""\n    return x')).toEqual([["f", 1, 3]]);
    });
});

test.describe("tests of pytest", () => {
    const found = (text: string): [string, number][] => testFunctions(text).map(({ id, line }) => [id, line]);

    test("functions, and methods of classes that pytest collects, but nothing inside functions", () => {
        expect(found("def test_one():\n    def test_inner():\n        pass\n\nasync def test_two(): ...")).toEqual([["test_one", 0], ["test_two", 4]]);
        expect(found("class TestModel:\n    def test_runs(self):\n        pass\n\n# end\n    def test_on(self): ...")).toEqual([["TestModel::test_runs", 1], ["TestModel::test_on", 5]]);
        expect(found("class Runs(unittest.TestCase):\n    def test_it(self): ...")).toEqual([["Runs::test_it", 1]]);
        expect(found("class Model:\n    def test_it(self): ...\n\ndef helper(): ...\n# def test_no():")).toEqual([]);
        expect(found("class TestOuter:\n    class TestInner:\n        def test_it(self): ...")).toEqual([["TestOuter::TestInner::test_it", 2]]);
    });

    test("only in files that pytest collects", () => {
        expect(["/a/test_model.py", "/a/model_test.py", "C:\\a\\test_x.py"].map(isTestFile)).toEqual([true, true, true]);
        expect(["/a/model.py", "/test_a/model.py", "/a/test_model.txt", "/a/latest.py"].map(isTestFile)).toEqual([false, false, false, false]);
    });
});

test.describe("names of a line", () => {
    test("alone, not in strings, comments or as attributes", () => {
        expect(namesIn('total = z.sum() + d["key"]  # by hand')).toEqual(["total", "z", "d"]);
    });

    test("bound by assignments, loops, parameters and walrus", () => {
        expect(namesBoundBy("    z = x + y")).toEqual(["z"]);
        expect(namesBoundBy("    a, (b, *c) = x")).toEqual(["a", "b", "c"]);
        expect(namesBoundBy("    total += x")).toEqual(["total"]);
        expect(namesBoundBy("    n: int = x")).toEqual(["n"]);
        expect(namesBoundBy("    for i, row in enumerate(rows):")).toEqual(["i", "row"]);
        expect(namesBoundBy("    if (n := len(x)) > 3:")).toEqual(["n"]);
        expect(namesBoundBy('    if mode == "add":')).toEqual([]);
        expect(namesBoundBy("    return x")).toEqual([]);
        expect(namesBoundBy("def f(x, y):")).toEqual(["x", "y"]);
    });

    test("the definition around a line", () => {
        const lines = ["def f(x):", "    for i in x:", "        y = i", "", "    return y", "z = 1"];
        expect(enclosingDefinition(lines, 2)).toBe(0);
        expect(enclosingDefinition(lines, 4)).toBe(0);
        expect(enclosingDefinition(lines, 5)).toBe(5);
    });
});

test.describe("lines that may show present values", () => {
    const shown = (text: string, stopped: number): Record<number, string[]> =>
        Object.fromEntries(linesWithPresentValues(text.split("\n"), stopped));

    test("a name that was bound again shows only at the last line", () => {
        expect(shown("def f(x):\n    q, k = x.chunk(2)\n    q = q.view(3)\n    return q", 3)).toEqual({ 0: ["x"], 1: ["k"], 2: ["q"], 3: ["return", "q"] });
    });

    test("not at a branch that may not have run", () => {
        const text = "def f(x):\n    a = x\n    if x:\n        a = x + 1\n    return a";
        expect(shown(text, 4)).toEqual({ 0: ["x"], 4: ["return", "a"] });
        expect(shown(text, 3)).toEqual({ 0: ["x"], 1: ["a"], 3: ["a", "x"] });
    });

    test("not before a loop whose body binds it again", () => {
        const text = "def f(\n    x,\n):\n    h = x\n    for i in range(3):\n        y = h + 1\n        h = y * 2\n    return h";
        expect(shown(text, 5)).toEqual({ 1: ["x"], 4: ["i"], 5: ["y", "h"] });
        expect(shown(text, 6)).toEqual({ 1: ["x"], 4: ["i"], 5: ["y"], 6: ["h", "y"] });
    });
});
