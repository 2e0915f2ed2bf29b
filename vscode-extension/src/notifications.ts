/**
 * Messages to the user, and nothing but text: VS Code shows Markdown's links in a notification, and a click on
 * "[text](command:…)" runs a command. What a program, a record or a folder says is in many messages.
 */

import * as vscode from "vscode";

import { withoutLinks } from "./session/links-in-texts.js";

export const showError = asText(vscode.window.showErrorMessage);
export const showWarning = asText(vscode.window.showWarningMessage);
export const showInformation = asText(vscode.window.showInformationMessage);

/** A function of VS Code's whose message is text. */
function asText<Show extends (text: string, ...others: never[]) => unknown>(show: Show): Show {
    return ((text: string, ...others: never[]) => show(withoutLinks(text), ...others)) as Show;
}
