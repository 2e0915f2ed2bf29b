/** Configurations that need no launch.json: offered by "Select and Start Debugging", used by F5 and the buttons. */

import * as vscode from "vscode";

import { showError } from "../notifications.js";
import { DEBUG_TYPE } from "./options.js";

export const currentFile: vscode.DebugConfiguration = {
    name: vscode.l10n.t("Debug torch.compile: current file"),
    type: DEBUG_TYPE,
    request: "launch",
    program: "${file}",
};

export const currentModule: vscode.DebugConfiguration = {
    name: vscode.l10n.t("Debug torch.compile: module"),
    type: DEBUG_TYPE,
    request: "launch",
    module: "${command:dynamo.askModule}",
};

export const pytest: vscode.DebugConfiguration = {
    name: vscode.l10n.t("Debug torch.compile: pytest"),
    type: DEBUG_TYPE,
    request: "launch",
    module: "pytest",
    args: ["-x", "${file}"],
};

export const torchrun: vscode.DebugConfiguration = {
    name: vscode.l10n.t("Debug torch.compile: torchrun"),
    type: DEBUG_TYPE,
    request: "launch",
    module: "torch.distributed.run",
    args: ["--standalone", "--nproc-per-node=2", "${file}"],
};

/** Also keeps the stages of each compile, for "Explore Stages". */
const explored: vscode.DebugConfiguration = {
    ...currentFile,
    name: vscode.l10n.t("Debug torch.compile: current file, with its stages"),
    explore: true,
};

const triton: vscode.DebugConfiguration = {
    ...currentFile,
    name: vscode.l10n.t("Debug torch.compile: Triton kernels on the CPU"),
    triton: "interpret",
};

const attach: vscode.DebugConfiguration = {
    name: vscode.l10n.t("Debug torch.compile: attach"),
    type: DEBUG_TYPE,
    request: "attach",
    connect: { host: "127.0.0.1", port: "${command:dynamo.askPort}" },
};

export const all: readonly vscode.DebugConfiguration[] = [currentFile, currentModule, pytest, torchrun, explored, triton, attach];

/** Returns the file on disk of `uri`. Saves an untitled document first; undefined if the user cancels that. */
export async function savedFile(uri: vscode.Uri): Promise<vscode.Uri | undefined> {
    const saved = uri.scheme === "untitled" ? await vscode.workspace.save(uri) : uri;
    if (saved?.scheme === "file") {
        return saved;
    }
    void showError(vscode.l10n.t("Save the Python file first: only a file on disk can be debugged."));
    return undefined;
}
