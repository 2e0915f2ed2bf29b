/** Finds the names in a line of Python from its text alone, precisely enough to place values at the ends of lines. */

const IDENTIFIER = /(?<![\w.])[A-Za-z_]\w*/g;
const NOT_CODE = /("""|''')[\s\S]*?(?:\1|$)|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|#.*$/g;
const DEFINITION = /^\s*(?:async\s+)?def\s+\w+/;
const LOOP = /^\s*(?:async\s+)?(?:for|while)\b/;
const TARGETS: readonly RegExp[] = [
    /^\s*([\w\s,.*()[\]]+?)\s*(?::[^=]+)?(?:[-+*/%@&|^]|\/\/|\*\*|<<|>>)?=(?!=)/,
    /^\s*(?:async\s+)?for\s+(.+?)\s+in\b/,
    /^\s*(?:async\s+)?with\b.*?\bas\s+([\w\s,()]+)/,
    /^\s*(?:async\s+)?def\s+\w+\s*\((.*)/,
    /\(\s*(\w+)\s*:=/,
];

/** The names in a line, without attributes, strings and comments. */
export function namesIn(line: string): string[] {
    return unique(withoutStrings(line).match(IDENTIFIER) ?? []);
}

/** The names that the line binds: targets of assignments and loops, parameters. */
export function namesBoundBy(line: string): string[] {
    const code = withoutStrings(line);
    return unique(TARGETS.flatMap((target) => target.exec(code)?.[1]?.match(IDENTIFIER) ?? []));
}

/** The statement after `line` (0-based), if that line assigns a name in `expression` and a statement follows it. */
export function afterAssignment(lines: readonly string[], line: number, expression: string): { line: number; name: string } | undefined {
    const text = lines[line] ?? "";
    const used = namesIn(expression);
    const name = namesBoundBy(text).find((each) => used.includes(each));
    if (name === undefined || withoutStrings(text).trimEnd().endsWith(":")) {
        return undefined;
    }
    const next = nextStatement(lines.map(withoutStrings), line);
    return next !== undefined && indentationOf(lines[next] ?? "") === indentationOf(text) ? { line: next, name } : undefined;
}

function nextStatement(lines: readonly string[], line: number): number | undefined {
    let depth = 0;
    const found = lines.slice(line).findIndex((code, index) => {
        if (index > 0 && depth === 0 && code.trim() !== "") {
            return true;
        }
        depth += code.split(/[([{]/).length - code.split(/[)\]}]/).length;
        return false;
    });
    return found < 0 ? undefined : line + found;
}

/** The 0-based line of the `def` that contains `line`, or `line` itself at the top level. */
export function enclosingDefinition(lines: readonly string[], line: number): number {
    let indentation = indentationOf(lines[line] ?? "");
    for (let index = line; index >= 0; index -= 1) {
        const text = lines[index] ?? "";
        // Skip the closing bracket of a multi-line header, which has the indentation of its "def".
        if (text.trim() === "" || /^\s*\)/.test(text) || (index !== line && indentationOf(text) >= indentation)) {
            continue;
        }
        if (DEFINITION.test(text)) {
            return index;
        }
        indentation = Math.min(indentation, indentationOf(text));
    }
    return line;
}

/**
 * Returns the lines of the function around `stopped` (0-based) at which to show present values, each with its names.
 * The line about to run shows the names that it uses. An earlier line shows a name only if the present value must come
 * from that line: no later line binds the name, and the value cannot come from a branch or from an earlier loop
 * iteration.
 */
export function linesWithPresentValues(lines: readonly string[], stopped: number): Map<number, string[]> {
    const first = enclosingDefinition(lines, stopped);
    const shown = new Map<number, string[]>([[stopped, namesIn(lines[stopped] ?? "")]]);
    const bindings = new Map<string, number[]>();
    const body = bodyOf(lines, first);
    for (let line = first; line < endOfBlock(lines, first); line += 1) {
        const text = lines[line] ?? "";
        for (const name of line < body ? namesIn(text.replace(DEFINITION, "")) : namesBoundBy(text)) {
            bindings.set(name, [...(bindings.get(name) ?? []), line]);
        }
    }
    for (const [name, bound] of bindings) {
        const line = bound.filter((one) => one < stopped).at(-1);
        if (line !== undefined && isSurelyLast(lines, bound, line, stopped)) {
            shown.set(line, [...(shown.get(line) ?? []), name]);
        }
    }
    return shown;
}

/** Whether the value at `stopped` must come from `line`, the last line in `bound` before `stopped`. */
function isSurelyLast(lines: readonly string[], bound: readonly number[], line: number, stopped: number): boolean {
    const blocks = enclosingBlocks(lines, stopped);
    const loops = blocks.filter((header) => LOOP.test(lines[header] ?? "") && header > line);
    const boundInLoopLater = loops.some((header) => bound.some((one) => one >= stopped && one < endOfBlock(lines, header)));
    const others = bound.filter((one) => one < line);
    const mayNotHaveRun = enclosingBlocks(lines, line).some((header) => header > (bound[0] ?? line) && !blocks.includes(header));
    return !boundInLoopLater && (others.length === 0 || !mayNotHaveRun);
}

/** The headers of the blocks around `line`, from the innermost up to the definition. */
function enclosingBlocks(lines: readonly string[], line: number): number[] {
    const headers: number[] = [];
    let indentation = indentationOf(lines[line] ?? "");
    const first = enclosingDefinition(lines, line);
    for (let index = line - 1; index > first; index -= 1) {
        const text = lines[index] ?? "";
        if (text.trim() !== "" && indentationOf(text) < indentation) {
            headers.push(index);
            indentation = indentationOf(text);
        }
    }
    return headers;
}

/** The line after the header of the definition at `first`. The header may have several lines. */
function bodyOf(lines: readonly string[], first: number): number {
    if (!DEFINITION.test(lines[first] ?? "")) {
        return first;
    }
    const last = lines.findIndex((text, index) => index >= first && /:\s*$/.test(withoutStrings(text)));
    return last === -1 ? first + 1 : last + 1;
}

/** The line after the block with this header; at the top level, the line after the last. */
function endOfBlock(lines: readonly string[], header: number): number {
    const indentation = indentationOf(lines[header] ?? "");
    if (!/:\s*(#.*)?$|[([,]\s*(#.*)?$/.test(lines[header] ?? "")) {
        return lines.length;
    }
    const end = lines.findIndex(
        (text, index) =>
            index > header && text.trim() !== "" && indentationOf(text) <= indentation && !/^\s*[)\]}#]/.test(text),
    );
    return end === -1 ? lines.length : end;
}

function withoutStrings(line: string): string {
    return line.replace(NOT_CODE, (match) => " ".repeat(match.length));
}

function indentationOf(line: string): number {
    return line.length - line.trimStart().length;
}

function unique(names: readonly string[]): string[] {
    return [...new Set(names)];
}
