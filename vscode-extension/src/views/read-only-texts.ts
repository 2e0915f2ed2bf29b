/** Opens read-only texts beside the editor, which stay readable after the end of the session. */

import * as vscode from "vscode";

const MOST_KEPT = 50;

export class ReadOnlyTexts implements vscode.TextDocumentContentProvider, vscode.Disposable {
    private readonly texts = new Map<string, string>();
    private readonly registration: vscode.Disposable;
    private opened = 0;

    constructor(private readonly scheme: string) {
        this.registration = vscode.workspace.registerTextDocumentContentProvider(scheme, this);
    }

    dispose(): void {
        this.registration.dispose();
    }

    provideTextDocumentContent(uri: vscode.Uri): string {
        return this.texts.get(uri.path) ?? "";
    }

    /** Opens a text under a name. The name's ending selects the language. */
    async show(name: string, text: string): Promise<void> {
        await vscode.window.showTextDocument(this.add(name, text), { preview: true, viewColumn: vscode.ViewColumn.Beside });
    }

    /** Adds a text and returns its URI, which a diff editor can read, too. */
    add(name: string, text: string): vscode.Uri {
        this.opened += 1;
        // The last part of the path is the title. It must not contain the slash of a compile's id.
        const uri = vscode.Uri.from({ scheme: this.scheme, path: `/${this.opened}/${name.replaceAll("/", "∕")}` });
        this.texts.set(uri.path, text);
        for (const old of [...this.texts.keys()].slice(0, -MOST_KEPT)) {
            this.texts.delete(old);
        }
        return uri;
    }
}
