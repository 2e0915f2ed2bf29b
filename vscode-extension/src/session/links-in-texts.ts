/** What VS Code takes for a link in a notification. Knows nothing of VS Code. */

const LINK = /\](?=\((?:https?:|command:|file:))/gi;

/** The text with a space in each link of Markdown, so that it is shown as text. */
export function withoutLinks(text: string): string {
    return text.replace(LINK, "] ");
}
