/** Shortens values for the ends of lines, without VS Code's API. */

const LONGEST_VALUE = 40;
const LONGEST_DATA = 60;

/** What the debugger says of larger data, after the device. */
const RANGE = /^.*? cpu( .*\d.*| all NaN| all True| all False)$/;

/**
 * "Tensor f32[2] cpu = [0.5, 1.0]" becomes "f32[2] = [0.5, 1.0]", larger data its range: "f32[4, 15] 0…1". Other values
 * are cut.
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
    return text.length <= LONGEST_VALUE ? text : `${text.slice(0, LONGEST_VALUE - 1)}…`;
}
