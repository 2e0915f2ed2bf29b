/** Configurations that need no launch.json: offered by "Select and Start Debugging", used by F5 and the buttons. */

import type { DebugConfiguration } from "vscode";

import { DEBUG_TYPE } from "./options.js";

export const currentFile: DebugConfiguration = {
    name: "Debug torch.compile: current file",
    type: DEBUG_TYPE,
    request: "launch",
    program: "${file}",
};

export const currentModule: DebugConfiguration = {
    name: "Debug torch.compile: module",
    type: DEBUG_TYPE,
    request: "launch",
    module: "${command:dynamo.askModule}",
};

export const pytest: DebugConfiguration = {
    name: "Debug torch.compile: pytest",
    type: DEBUG_TYPE,
    request: "launch",
    module: "pytest",
    args: ["-x", "${file}"],
};

export const all: readonly DebugConfiguration[] = [currentFile, currentModule, pytest];
