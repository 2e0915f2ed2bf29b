/** Links tree items to places in the user's code. */

import { basename } from "node:path";
import * as vscode from "vscode";

import type { Place } from "../session/requests.js";

/** "model.py:12" */
export function placeText(place: Place): string {
    return `${basename(place.path)}:${place.line}`;
}

/** A command that shows the place in an editor. */
export function openPlace(place: Place): vscode.Command {
    const position = new vscode.Position(place.line - 1, (place.column ?? 1) - 1);
    return {
        command: "vscode.open",
        title: vscode.l10n.t("Show in Editor"),
        arguments: [vscode.Uri.file(place.path), { selection: new vscode.Range(position, position), preview: true }],
    };
}

/** Gives the item a link to the place, and the place as the end of its description. */
export function linkTo(item: vscode.TreeItem, place: Place | undefined): vscode.TreeItem {
    if (place !== undefined) {
        item.description = [item.description, placeText(place)].filter((part) => part).join("  ");
        item.command = openPlace(place);
    }
    return item;
}
