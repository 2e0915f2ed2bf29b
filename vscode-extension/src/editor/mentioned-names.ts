/** Which names a line of Python is about, by a look at its text: good enough to place values at the ends of lines. */

const IDENTIFIER = /(?<![\w.])[A-Za-z_]\w*/g;
const NOT_CODE = /("""|''')[\s\S]*?(?:\1|$)|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|#.*$/g;
const TARGETS: readonly RegExp[] = [
    /^\s*([\w\s,.*()[\]]+?)\s*(?::[^=]+)?(?:[-+*/%@&|^]|\/\/|\*\*|<<|>>)?=(?!=)/,
    /^\s*(?:async\s+)?for\s+(.+?)\s+in\b/,
    /^\s*(?:async\s+)?with\b.*?\bas\s+([\w\s,()]+)/,
    /^\s*(?:async\s+)?def\s+\w+\s*\((.*)/,
    /\(\s*(\w+)\s*:=/,
];

/** Every name in the line that stands alone: no attributes, nothing in strings and comments. */
export function namesIn(line: string): string[] {
    return unique(withoutStrings(line).match(IDENTIFIER) ?? []);
}

/** The names that the line binds: targets of assignments and loops, parameters. */
export function namesBoundBy(line: string): string[] {
    const code = withoutStrings(line);
    return unique(TARGETS.flatMap((target) => target.exec(code)?.[1]?.match(IDENTIFIER) ?? []));
}

/** The 0-based line of the `def` around `line`, or `line` itself at the top level. */
export function enclosingDefinition(lines: readonly string[], line: number): number {
    let indentation = indentationOf(lines[line] ?? "");
    for (let index = line; index >= 0; index -= 1) {
        const text = lines[index] ?? "";
        if (text.trim() === "" || (index !== line && indentationOf(text) >= indentation)) {
            continue;
        }
        if (/^\s*(?:async\s+)?def\b/.test(text)) {
            return index;
        }
        indentation = Math.min(indentation, indentationOf(text));
    }
    return line;
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
