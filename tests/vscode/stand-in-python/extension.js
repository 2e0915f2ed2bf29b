/**
 * Replaces the Python extension, which tests cannot download reliably. It has the id `ms-python.python` and the two
 * calls of the API `environments` that tell other extensions which interpreter the user chose.
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
