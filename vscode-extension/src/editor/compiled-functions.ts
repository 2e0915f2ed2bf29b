/** Finds functions and classes under torch.compile in Python text, without running or fully parsing it. */

export interface CompiledDefinition {
    name: string;
    /** 0-based line of the `def`; for a class, of its `forward`. */
    line: number;
    /** 0-based line of the first statement of the body, at which to stop; undefined if this text lacks the definition. */
    bodyLine: number | undefined;
}

const DECORATOR = /^(\s*)@\s*(?:torch\s*\.\s*)?compile\b/;
const PARTIAL_DECORATOR = /^(\s*)@\s*(?:functools\s*\.\s*)?partial\s*\(\s*torch\s*\.\s*compile\b/;
const DEFINITION = /^(\s*)(?:async\s+)?(?:def|class)\s+(\w+)/;
/** `torch.compile(name`, also `name.forward`, `name.eval()`, and `Name(` if that is a class. */
const CALL = /\btorch\s*\.\s*compile\s*\(\s*([A-Za-z_]\w*)(?:\s*\.\s*(?:forward|__call__|\w+\s*\(.*))?\s*([,()]|$)/;
/** `name.compile()`, a method of modules. */
const COMPILED_IN_PLACE = /^\s*([A-Za-z_]\w*)\s*\.\s*compile\s*\(/;
const MADE_FROM = /^\s*([A-Za-z_]\w*)\s*(?::[^=]+)?=\s*([A-Za-z_]\w*)\s*\(/;
const CLASS = /^\s*class\b/;
const METHODS_THAT_RUN = ["forward", "__call__"];
const NAME_FROM_TORCH = /^\s*from\s+torch\s+import\s+[^#]*\bcompile\b/m;

/** Returns the compiled definitions, each once, in the order of their lines. */
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

/** The definition below a decorator. Other decorators, or further lines of the decorator, may stand between them. */
function decorated(lines: string[], from: number): CompiledDefinition | undefined {
    const line = lines.findIndex((text, index) => index > from && DEFINITION.test(text));
    return line === -1 ? undefined : definition(lines, line);
}

/** The definition of `name` in `torch.compile(name)`, or of its class, if it is in the same text. */
function called(lines: string[], text: string): CompiledDefinition | undefined {
    const [, name, next] = (text.trimStart().startsWith("#") ? null : (CALL.exec(text) ?? COMPILED_IN_PLACE.exec(text))) ?? [];
    if (name === undefined || (next === "(" && !isClass(lines, name))) {
        return undefined;
    }
    const line = lineOfDefinition(lines, name) ?? lineOfDefinition(lines, originalName(lines, name));
    return line === undefined ? undefined : definition(lines, line);
}

function lineOfDefinition(lines: string[], name: string | undefined): number | undefined {
    const line = lines.findIndex((candidate) => DEFINITION.exec(candidate)?.[2] === name);
    return name === undefined || line === -1 ? undefined : line;
}

function isClass(lines: string[], name: string): boolean {
    return CLASS.test(lines[lineOfDefinition(lines, name) ?? -1] ?? "");
}

/** The class in `model = Tiny()`. */
function originalName(lines: string[], name: string): string | undefined {
    return lines.map((line) => MADE_FROM.exec(line)).find((made) => made?.[1] === name)?.[2];
}

/** A function itself; for a class its `forward`, where tracing begins. */
function definition(lines: string[], line: number): CompiledDefinition | undefined {
    const [, indentation = "", name = ""] = DEFINITION.exec(lines[line] ?? "") ?? [];
    if (CLASS.test(lines[line] ?? "")) {
        const method = methodThatRuns(lines, line, indentation.length);
        return method === undefined ? undefined : { name, line: method, bodyLine: bodyLine(lines, method) };
    }
    return { name, line, bodyLine: bodyLine(lines, line) };
}

function methodThatRuns(lines: string[], classLine: number, indentation: number): number | undefined {
    for (let index = classLine + 1; index < lines.length; index += 1) {
        const text = lines[index] ?? "";
        const inside = text.trim() === "" || text.length - text.trimStart().length > indentation;
        if (!inside && !text.trimStart().startsWith("#")) {
            return undefined;
        }
        if (METHODS_THAT_RUN.includes(DEFINITION.exec(text)?.[2] ?? "")) {
            return index;
        }
    }
    return undefined;
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
