/** Recognizes a stop of the program in the page. */

/** Runs in the page. Returns the rows of the call stack at a stop, "dialog" if a dialog is open, else null. */
export function stackIfStopped([source, flags]: readonly [string, string]): string[] | "dialog" | null {
    const rows = [...document.querySelectorAll<HTMLElement>(".debug-call-stack .monaco-list-row")];
    const stack = rows.map((row) => row.innerText.replace(/\s+/g, " ").trim());
    const top = stack.find((row) => / \d+:\d+$/.test(row)) ?? "";
    if (new RegExp(source, flags).test(top) && document.querySelector(".debug-call-stack .codicon-debug-pause") === null) {
        return stack;
    }
    return document.querySelector(".monaco-dialog-box") === null ? null : "dialog";
}
