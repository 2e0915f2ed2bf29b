/** Finds functions and classes under torch.compile in Python text, without running or fully parsing it. */

export interface CompiledDefinition {
    name: string;
    /** 0-based line of the `def` or `class`, or of the call `torch.compile(...)`. */
    line: number;
    /** 0-based line to stop at: the first statement of the body, if the definition is in this text. */
    bodyLine: number | undefined;
}

const DECORATOR = /^(\s*)@\s*(?:torch\s*\.\s*)?compile\b/;
const PARTIAL_DECORATOR = /^(\s*)@\s*(?:functools\s*\.\s*)?partial\s*\(\s*torch\s*\.\s*compile\b/;
const DEFINITION = /^(\s*)(?:async\s+)?(?:def|class)\s+(\w+)/;
const CALL = /\btorch\s*\.\s*compile\s*\(\s*([A-Za-z_]\w*)\b(?!\s*[(.=])/;
const NAME_FROM_TORCH = /^\s*from\s+torch\s+import\s+[^#]*\bcompile\b/m;

/** Returns the definitions that are compiled, in the order of their lines, each once. */
export function compiledDefinitions(text: string): CompiledDefinition[] {
    const lines = text.split(/\r?\n/);
    const bareName = NAME_FROM_TORCH.test(text);
    const found = new Map<number, CompiledDefinition>();
    lines.forEach((line, index) => {
        const made = isDecorator(line, bareName) ? decorated(lines, index) : called(lines, line);
        if (made !== undefined) {
            found.set(made.line, made);
        }
    });
    return [...found.values()].sort((a, b) => a.line - b.line);
}

function isDecorator(line: string, bareName: boolean): boolean {
    const match = DECORATOR.exec(line);
    return PARTIAL_DECORATOR.test(line) || (match !== null && (bareName || match[0].includes("torch")));
}

/** The definition below a decorator, which may be followed by others and by the rest of its own arguments. */
function decorated(lines: string[], from: number): CompiledDefinition | undefined {
    const line = lines.findIndex((text, index) => index > from && DEFINITION.test(text));
    return line === -1 ? undefined : definition(lines, line);
}

/** The definition that `torch.compile(name)` means, when it is in the same text. */
function called(lines: string[], text: string): CompiledDefinition | undefined {
    const name = text.trimStart().startsWith("#") ? undefined : CALL.exec(text)?.[1];
    const line = lines.findIndex((candidate) => DEFINITION.exec(candidate)?.[2] === name);
    return name === undefined || line === -1 ? undefined : definition(lines, line);
}

function definition(lines: string[], line: number): CompiledDefinition | undefined {
    const match = DEFINITION.exec(lines[line] ?? "");
    return match === null ? undefined : { name: match[2] ?? "", line, bodyLine: bodyLine(lines, line) };
}

function bodyLine(lines: string[], from: number): number | undefined {
    let header = from;
    while (header < lines.length && !/:\s*(#.*)?$/.test(lines[header] ?? "")) {
        header += 1;
    }
    let inString = false;
    for (let index = header + 1; index < lines.length; index += 1) {
        const text = (lines[index] ?? "").trim();
        const quotes = (text.match(/"""|'''/g) ?? []).length;
        if (inString || quotes > 0) {
            inString = quotes % 2 === 1 ? !inString : inString;
        } else if (text !== "" && !text.startsWith("#")) {
            return index;
        }
    }
    return undefined;
}
