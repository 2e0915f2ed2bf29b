/**
 * The real Python extension is in no registry that tests can count on. This has its place and the two calls of its API
 * (`ms-python.python`, `environments`) by which other extensions learn the interpreter that the user chose.
 */

const vscode = require("vscode");

function activate() {
    const environments = {
        getActiveEnvironmentPath: (resource) => {
            const path = vscode.workspace.getConfiguration("standIn", resource ?? null).get("interpreter", "");
            return { id: path, path };
        },
        resolveEnvironment: async ({ path }) => (path === "" ? undefined : { executable: { uri: vscode.Uri.file(path) } }),
    };
    vscode.commands.registerCommand("python.createEnvironment", () => vscode.window.showInformationMessage("An environment is created."));
    return { ready: Promise.resolve(), environments };
}

module.exports = { activate };
