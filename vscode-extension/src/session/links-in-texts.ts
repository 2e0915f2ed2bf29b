/** What VS Code takes for a link in a notification and in the widget of a stop. Knows nothing of VS Code. */

const PLACE = "at ";
const LINK = /\](?=\((?:https?:|command:|file:))/gi;

/** The text with a space in each link of Markdown, so that it is shown as text. */
export function withoutLinks(text: string): string {
    return text.replace(LINK, "] ");
}

/** The text with the paths of lines like "at /folder/train.py:9" relative to `folder`: "at ./train.py:9". */
export function withRelativePaths(text: string, folder: string): string {
    const start = ["/", "\\"].some((separator) => folder.endsWith(separator)) ? folder.slice(0, -1) : folder;
    const lines = text.split("\n").map((line) => {
        const [word, path] = [line.slice(0, PLACE.length), line.slice(PLACE.length)];
        const rest = word === PLACE && path.startsWith(start) ? path.slice(start.length) : "";
        return /^[/\\].*:\d+$/.test(rest) ? `${word}.${rest}` : line;
    });
    return lines.join("\n");
}

/** The places in lines like "at /folder/train.py:9", or "at ./train.py:9" in `folder`. */
export function placesIn(text: string, folder = ""): { path: string; line: number }[] {
    const found = [...text.matchAll(/^at (\.?[/\\].*|[A-Z]:.*):(\d+)$/gm)];
    return found.map(([, path = "", line]) => ({ path: path.startsWith(".") ? folder + path.slice(1) : path, line: Number(line) }));
}
