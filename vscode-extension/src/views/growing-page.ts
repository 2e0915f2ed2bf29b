/** Follows a page that another one replaces, such as that of the first part of a large trace log. Without VS Code's API. */

import { readFile } from "node:fs/promises";

/** By this a browser loads the page of a part again and again, which a webview cannot. */
const RELOAD = "<meta http-equiv='refresh' content='5'>";
const MILLISECONDS = 1000;

/** Shows the page now, and the page of the whole when it has replaced this one. Returns what ends this. */
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
