/** The program that a command runs: the file in the editor, or the program that a debug session has launched. */

import { basename, dirname } from "node:path";
import * as vscode from "vscode";

import { frontDocument } from "../configuration/front-document.js";
import type { DynamoConfiguration } from "../configuration/options.js";
import { savedFile } from "../configuration/ready-made.js";
import { findInterpreter } from "../environment/interpreter.js";

export interface Program {
    name: string;
    /** The command of the program's Python. */
    python: readonly string[];
    /** The program's command line after Python: a file, or `-m` and a module, then arguments. */
    words: string[];
    cwd: string;
    env: NodeJS.ProcessEnv;
    folder: vscode.WorkspaceFolder | undefined;
}

/** Saves the file in the editor and returns its program; undefined if the user declines. */
export async function programInEditor(): Promise<Program | undefined> {
    const document = frontDocument();
    const file = document === undefined ? undefined : await savedFile(document.uri);
    if (file === undefined) {
        return undefined;
    }
    await vscode.workspace.save(file);
    const folder = vscode.workspace.getWorkspaceFolder(file);
    const python = [await findInterpreter(folder?.uri)];
    // The same folder as for F5.
    const cwd = folder?.uri.fsPath ?? dirname(file.fsPath);
    return { name: basename(file.fsPath), python, words: [file.fsPath], cwd, env: process.env, folder };
}

/** The program that a session has launched; undefined if a command cannot run it again. */
export function programOf(session: vscode.DebugSession): Program | undefined {
    const { request, program, module, args = [], cwd, env = {}, __python: python } = session.configuration as DynamoConfiguration;
    const target = program ?? module;
    if (request !== "launch" || target === undefined || python === undefined || cwd === undefined) {
        return undefined;
    }
    // Splits a text like a shell, but handles only plain quotes.
    const given = typeof args === "string" ? [...args.matchAll(/"([^"]*)"|'([^']*)'|(\S+)/g)].map((found) => found[1] ?? found[2] ?? found[3] ?? "") : args;
    const words = program === undefined ? ["-m", target, ...given] : [program, ...given];
    const environment = { ...process.env };
    for (const [name, value] of Object.entries(env)) {
        environment[name] = value ?? undefined;
    }
    return { name: basename(target), python, words, cwd, env: environment, folder: session.workspaceFolder };
}
