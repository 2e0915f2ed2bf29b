/** Finds pytest's tests in Python text, without running or fully parsing it. */

export interface TestFunction {
    name: string;
    /** 0-based line of the `def`. */
    line: number;
    /** The part of pytest's test id after the file: `TestModel::test_compiles`. */
    id: string;
}

const TEST = /^\s*(?:async\s+)?def\s+(test\w*)\s*\(/;
const CLASS = /^\s*class\s+(\w+)\s*(\([^)]*)?/;
const BLOCK = /^\s*(?:async\s+)?(?:def|class)\s/;
/** The files that pytest collects by default. */
const FILE = /(?:^|[\\/])(?:test_[^\\/]*|[^\\/]*_test)\.py$/;

/** Whether pytest collects tests from this file. */
export function isTestFile(path: string): boolean {
    return FILE.test(path);
}

/** Returns the tests in the order of their lines. A function inside another function is not a test. */
export function testFunctions(text: string): TestFunction[] {
    const found: TestFunction[] = [];
    /** The blocks around the line, outermost first; `name` is undefined if pytest collects no tests from the block. */
    let around: { indent: number; name: string | undefined }[] = [];
    text.split(/\r?\n/).forEach((line, index) => {
        const indent = line.search(/[^\s#]/);
        if (indent === -1 || line[indent - 1] === "#") {
            return;
        }
        around = around.filter((block) => block.indent < indent);
        const name = TEST.exec(line)?.[1];
        if (name !== undefined && around.every((block) => block.name !== undefined)) {
            found.push({ name, line: index, id: [...around.map((block) => block.name), name].join("::") });
        }
        if (BLOCK.test(line)) {
            around.push({ indent, name: classLookedInto(line) });
        }
    });
    return found;
}

function classLookedInto(line: string): string | undefined {
    const [, name = "", bases = ""] = CLASS.exec(line) ?? [];
    return name.startsWith("Test") || bases.includes("TestCase") ? name : undefined;
}
