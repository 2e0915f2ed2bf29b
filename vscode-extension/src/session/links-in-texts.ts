/** Handles the links that VS Code recognizes in notifications and in a stop's message. Without VS Code's API. */

const PLACE = "at ";
const LINK = /\](?=\((?:https?:|command:|file:))/gi;

/** Returns the text with a space in each Markdown link, so that VS Code shows it as text. */
export function withoutLinks(text: string): string {
    return text.replace(LINK, "] ");
}

/** Returns the text with paths relative to `folder`: "at /folder/train.py:9" becomes "at ./train.py:9". */
export function withRelativePaths(text: string, folder: string): string {
    const start = ["/", "\\"].some((separator) => folder.endsWith(separator)) ? folder.slice(0, -1) : folder;
    const lines = text.split("\n").map((line) => {
        const [word, path] = [line.slice(0, PLACE.length), line.slice(PLACE.length)];
        const rest = word === PLACE && path.startsWith(start) ? path.slice(start.length) : "";
        return /^[/\\].*:\d+$/.test(rest) ? `${word}.${rest}` : line;
    });
    return lines.join("\n");
}

/** Returns the places in lines like "at /folder/train.py:9", or "at ./train.py:9" in `folder`. */
export function placesIn(text: string, folder = ""): { path: string; line: number }[] {
    const found = [...text.matchAll(/^at (\.?[/\\].*|[A-Z]:.*):(\d+)$/gm)];
    return found.map(([, path = "", line]) => ({ path: path.startsWith(".") ? folder + path.slice(1) : path, line: Number(line) }));
}
