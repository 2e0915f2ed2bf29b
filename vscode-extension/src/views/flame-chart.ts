/** Shows the page of `dynamo-dap profile --html` in an editor. A click on a place opens the user's line. */

import { readFile } from "node:fs/promises";
import * as vscode from "vscode";

import type { Place } from "../session/requests.js";
import { openPlace } from "./links.js";

/** Opens the page at `path`. */
export async function openFlameChart(path: string): Promise<void> {
    // The page's own policy allows only its own script, so names from the program cannot run code.
    const options = { enableScripts: true, retainContextWhenHidden: true, localResourceRoots: [] };
    const panel = vscode.window.createWebviewPanel("dynamo.flameChart", vscode.l10n.t("Compile time"), vscode.ViewColumn.Active, options);
    panel.webview.onDidReceiveMessage(async (message: unknown) => {
        const place = placeOf(message);
        if (place !== undefined) {
            const { command, arguments: given = [] } = openPlace(place);
            await vscode.commands.executeCommand(command, ...(given as unknown[]));
        }
    });
    panel.webview.html = await readFile(path, "utf8");
}

function placeOf(message: unknown): Place | undefined {
    const { path, line } = message as { path?: unknown; line?: unknown };
    return typeof path === "string" && typeof line === "number" ? { path, line } : undefined;
}
