/** Finds numbers in the texts of values. Knows nothing of VS Code. */

const NUMBER = "[-+]?(?:(?:\\d+\\.?\\d*|\\.\\d+)(?:[eE][-+]?\\d+)?|inf|nan)";
const ALONE = new RegExp(`^(${NUMBER})$`);
const OF_TENSOR = new RegExp(`^tensor\\((${NUMBER})[,)]`);
/** "Tensor f32[] cpu = 0.5" */
const AFTER_METADATA = new RegExp(` = (${NUMBER})$`);
/** The texts after a tensor's data, in either order. */
const AFTER_DATA = /,? requires_grad(?=(?: \(not proven\))?$)| \(not proven\)(?=(?:, requires_grad)?$)/g;
/** "s0 (3 in this call)" */
const OF_SYMBOL = new RegExp(`\\((${NUMBER}) in this call\\)$`);
const MOST = 16;

/** Returns the numbers in a value that is a number, a list or a vector; none for other values. */
export function numbersIn(text: string): number[] {
    const plain = text.trim().replace(AFTER_DATA, "");
    if (plain === "True" || plain === "False") {
        return [plain === "True" ? 1 : 0];
    }
    const one = [ALONE, OF_TENSOR, AFTER_METADATA, OF_SYMBOL].map((kind) => kind.exec(plain)?.[1]).find((found) => found !== undefined);
    if (one !== undefined) {
        return [numberOf(one)];
    }
    const list = /^(?:tensor\(|.* = |)[[(](.*?)(?:[\])]|…)/.exec(plain)?.[1];
    const parts = list?.replace(/^[[(]+/, "").split(",").map((part) => part.trim()) ?? [];
    return parts.every((part) => ALONE.test(part)) ? parts.slice(0, MOST).map(numberOf) : [];
}

/** Returns the values of a log message's expressions, if `line` is output of that message. */
export function valuesIn(line: string, logMessage: string): Map<string, string> | undefined {
    const parts = logMessage.split(/\{([^{}]+)\}/);
    // Every second part is an expression.
    const pattern = parts.map((part, at) => (at % 2 === 1 ? "(.*?)" : part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))).join("");
    const found = parts.length > 1 ? new RegExp(`^${pattern}$`).exec(line) : null;
    if (found === null) {
        return undefined;
    }
    const names = parts.filter((_, at) => at % 2 === 1);
    return new Map(names.map((name, at) => [name.trim(), found[at + 1] ?? ""]));
}

function numberOf(text: string): number {
    if (text.endsWith("inf")) {
        return text.startsWith("-") ? -Infinity : Infinity;
    }
    return Number(text);  // NaN for "nan"
}
