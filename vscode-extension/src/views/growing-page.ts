/** Follows a page whose file is replaced later, such as that of a trace log's first part. Without VS Code's API. */

import { readFile } from "node:fs/promises";

/** Makes a browser reload the page of a part every 5 seconds. A webview cannot reload. */
const RELOAD = "<meta http-equiv='refresh' content='5'>";
const MILLISECONDS = 1000;

/** Shows the page now, and again each time its file changes, until it is complete. Returns a function that stops this. */
export async function followPage(path: string, show: (html: string) => void): Promise<() => void> {
    let timer: NodeJS.Timeout | undefined;
    let shown = "";
    const look = async (): Promise<void> => {
        const html = await readFile(path, "utf8");
        if (html !== shown) {
            shown = html;
            show(html.replace(RELOAD, ""));
        }
        if (html.includes(RELOAD)) {
            timer = setTimeout(() => void look(), MILLISECONDS);
        }
    };
    await look();
    return () => {
        clearTimeout(timer);
    };
}
