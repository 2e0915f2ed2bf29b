/** A tree view that requests its roots again after each change. If the request fails, the view shows the message. */

import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";

/** A node that knows its item and its children. */
export interface TreeNode {
    item: vscode.TreeItem;
    children?: TreeNode[];
    parent?: TreeNode;
}

/** The source of a view's contents. */
interface Changing {
    onDidChange: vscode.Event<void>;
}

export class PullTree implements vscode.TreeDataProvider<TreeNode> {
    readonly view: vscode.TreeView<TreeNode>;
    readonly onDidChangeTreeData: vscode.Event<void>;
    private readonly forgetting: vscode.Disposable;
    /** The roots of the present state. After a change, VS Code may ask twice, and needs the same nodes both times. */
    private asked: Promise<TreeNode[]> | undefined;

    constructor(
        id: string,
        shown: Changing,
        private readonly roots: (view: vscode.TreeView<TreeNode>) => Promise<TreeNode[]>,
    ) {
        this.forgetting = vscode.Disposable.from(
            shown.onDidChange(() => {
                this.asked = undefined;
            }),
            vscode.debug.onDidTerminateDebugSession(({ type, parentSession }) => {
                if (type === DEBUG_TYPE && parentSession === undefined) {
                    // An empty view offers again to start a program.
                    this.view.message = "";
                }
            }),
        );
        this.onDidChangeTreeData = shown.onDidChange;
        this.view = vscode.window.createTreeView(id, { treeDataProvider: this, showCollapseAll: false });
    }

    getTreeItem(node: TreeNode): vscode.TreeItem {
        return node.item;
    }

    getParent(node: TreeNode): TreeNode | undefined {
        return node.parent;
    }

    async getChildren(node?: TreeNode): Promise<TreeNode[]> {
        if (node !== undefined) {
            return node.children ?? [];
        }
        return (this.asked ??= this.ask());
    }

    private async ask(): Promise<TreeNode[]> {
        try {
            const roots = await this.roots(this.view);
            this.view.message = "";
            return roots;
        } catch (error) {
            this.view.message = sentence(error instanceof Error ? error.message : String(error));
            return [];
        }
    }

    dispose(): void {
        this.forgetting.dispose();
        this.view.dispose();
    }
}

/** Returns an error's text as a sentence, like the other texts of empty views. */
function sentence(text: string): string {
    return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}

/** Makes an item with an icon, a description and a tooltip. With `open`, its children are shown at first. */
export function makeNode(
    id: string,
    label: string,
    icon: string,
    details: { description?: string; tooltip?: string; children?: TreeNode[]; open?: boolean } = {},
): TreeNode {
    const state = vscode.TreeItemCollapsibleState;
    const hasChildren = (details.children?.length ?? 0) > 0;
    const item = new vscode.TreeItem(label, hasChildren ? (details.open ? state.Expanded : state.Collapsed) : state.None);
    item.id = id;
    item.iconPath = new vscode.ThemeIcon(icon);
    item.tooltip = details.tooltip ?? [label, details.description].filter((part) => part).join("  ");
    if (details.description !== undefined) {
        item.description = details.description;
    }
    const node: TreeNode = { item, children: details.children ?? [] };
    for (const child of node.children ?? []) {
        child.parent = node;
    }
    return node;
}
