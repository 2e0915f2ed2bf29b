/** Shortens values for the ends of lines, without VS Code's API. */

const LONGEST_VALUE = 40;
const LONGEST_DATA = 60;

/** The value of a module of a model or of Python, which shows only the type that its name already suggests. */
const MODULE = /^<(?:\S+ module|module \S+)>$/;

/** The debugger's summary of larger data, after the device. */
const RANGE = /^.*? cpu( .*\d.*| all NaN| all True| all False)$/;

/** Whether a variable's value belongs at the end of a line: those of `self` and of modules show no data. */
export function isWorthShowing(name: string, value: string): boolean {
    return name !== "self" && name !== "cls" && !MODULE.test(value);
}

/**
 * Shortens "Tensor f32[2] cpu = [0.5, 1.0]" to "f32[2] = [0.5, 1.0]", larger data to its range, "f32[4, 15] 0…1", and a
 * long list of tensors to "[f32[4, 15], f32[4, 15], +3 more]". Cuts off other values.
 */
export function briefValue(whole: string): string {
    const value = whole.replace(/,? requires_grad(?= \(not proven\)$|$)/, "");
    const tensor = /^(?:Tensor|Parameter|Buffer)\s+(\w+)(\[[^\]]*\])/.exec(value);
    if (tensor !== null) {
        const [, dtype = "", sizes = ""] = tensor;
        const data = value.includes(" = ") ? value.slice(value.indexOf(" = ") + 3) : "";
        if (data === "" || data.length > LONGEST_DATA) {
            return dtype + sizes + (data === "" ? (RANGE.exec(value)?.[1] ?? "") : "");
        }
        return sizes === "[]" ? data : `${dtype}${sizes} = ${data}`;
    }
    const text = value.replace(/\s+/g, " ");
    return text.length <= LONGEST_VALUE ? text : cut(text);
}

function cut(text: string): string {
    return briefTensors(text) ?? `${text.slice(0, LONGEST_VALUE - 1)}…`;
}

/** Shortens a list or tuple that has only tensors; undefined for other values. */
function briefTensors(text: string): string | undefined {
    const [, opening = "", inside = "", closing = "", total] = /^([[(])(.*?),?([\])])(?: \((\d+) items\))?$/.exec(text) ?? [];
    const items = inside.split(/, (?=(?:Tensor|Parameter|Buffer) |…$)/).filter((item) => item !== "…");
    const shapes = items.flatMap((item) => {
        const [, shape, rest = ""] = /^(?:Tensor|Parameter|Buffer) (\w+\[[^\]]*\])(.*)$/.exec(item) ?? [];
        return shape === undefined || withoutData(rest).includes(",") ? [] : [shape];
    });
    if (opening === "" || shapes.length !== items.length) {
        return undefined;
    }
    const count = total === undefined ? items.length : Number(total);
    const brief = (shown: number): string => {
        const more = shown < count ? [`+${count - shown} more`] : [];
        return opening + [...shapes.slice(0, shown), ...more].join(", ") + closing;
    };
    let shown = shapes.length;
    while (shown > 1 && brief(shown).length > LONGEST_VALUE) {
        shown -= 1;
    }
    return brief(shown);
}

/** Removes a tensor's data and marks. A comma in the rest separates something else than a tensor's elements. */
function withoutData(rest: string): string {
    let plain = rest.replace(/,? requires_grad/g, "");
    for (let before = ""; before !== plain; ) {
        before = plain;
        plain = plain.replace(/\[[^[\]]*\]/g, "");
    }
    return plain;
}
