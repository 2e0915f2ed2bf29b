/**
 * Shows messages as plain text. VS Code renders Markdown links in notifications, and a click on "[text](command:…)"
 * runs a command. Many messages quote a program, a record or a folder, which must not be able to do that.
 */

import * as vscode from "vscode";

import { withoutLinks } from "./session/links-in-texts.js";

export const showError = asText(vscode.window.showErrorMessage);
export const showWarning = asText(vscode.window.showWarningMessage);
export const showInformation = asText(vscode.window.showInformationMessage);

/** Wraps a function of VS Code that shows a message, so that links in the message have no effect. */
function asText<Show extends (text: string, ...others: never[]) => unknown>(show: Show): Show {
    return ((text: string, ...others: never[]) => show(withoutLinks(text), ...others)) as Show;
}
