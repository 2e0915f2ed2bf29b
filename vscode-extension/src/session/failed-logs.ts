/** Counts hits of log messages without a value. Knows nothing of VS Code; one for each session. */

export interface FailedLog {
    path: string;
    /** From 1. */
    line: number;
    hits: number;
    /** The first expression without a value. */
    expression: string;
    /** Why the expression has no value, as the debugger reported at the last hit. */
    problem: string;
}

export class FailedLogs {
    private readonly logs = new Map<string, FailedLog & { hasValue: boolean }>();

    /** Adds one hit, with the texts of the expressions' values. */
    add(path: string, line: number, values: Record<string, string>): void {
        const key = `${path}:${line}`;
        const log = this.logs.get(key) ?? { path, line, hits: 0, expression: "", problem: "", hasValue: false };
        this.logs.set(key, log);
        log.hits += 1;
        const failed = Object.entries(values).find(([expression, text]) => text.startsWith(`<${expression}: `) && text.endsWith(">"));
        if (failed === undefined) {
            log.hasValue = true;
            return;
        }
        const [expression, text] = failed;
        log.expression = expression;
        log.problem = text.slice(expression.length + 3, -1).replace(/^EvaluationError: /, "");
    }

    /** The log messages whose every hit failed. */
    failed(): FailedLog[] {
        return [...this.logs.values()].filter(({ hasValue }) => !hasValue);
    }
}
