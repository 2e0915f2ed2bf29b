/** Links in notification texts. Runs without an editor. */

import { expect, test } from "@playwright/test";

import { withoutLinks } from "../../vscode-extension/src/session/links-in-texts.js";

test("a Markdown link is text in a notification", () => {
    // VS Code's own pattern for links: `parseLinkedText` in its linkedText.ts.
    const link = /\[([^\]]+)\]\(((?:https?:\/\/|command:|file:)[^)\s]+)(?: (["'])(.+?)(\3))?\)/gi;
    const texts = ["[Show](command:workbench.action.quit)", "[[a](COMMAND:b 'c')", "[a](file:///etc/passwd) [b](https://example.org)"];
    for (const text of texts) {
        expect(text).toMatch(link);
        expect(withoutLinks(text)).not.toMatch(link);
    }
    expect(withoutLinks("x[0](y) [a] (b)")).toBe("x[0](y) [a] (b)");
});
