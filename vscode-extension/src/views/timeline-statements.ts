/** Makes tree nodes from the statements of a timeline, with the statements' text from the source files. */

import { readFile } from "node:fs/promises";
import * as vscode from "vscode";

import type { TimelineBody, TimelineEntry } from "../session/requests.js";
import { placeText } from "./links.js";
import { makeNode, type TreeNode } from "./pull-tree.js";

const CURRENT = new vscode.ThemeIcon("debug-stackframe", new vscode.ThemeColor("debugIcon.breakpointCurrentStackframeForeground"));
const BREAKPOINT = new vscode.ThemeIcon("debug-breakpoint", new vscode.ThemeColor("debugIcon.breakpointForeground"));

interface Statement {
    entry: TimelineEntry;
    /** Its number in the whole timeline, from 1. */
    number: number;
    below: Statement[];
}

interface Shown {
    nodes: TreeNode[];
    current?: { node: TreeNode; number: number };
}

/** The statements of a part of a timeline. Those of an inlined function are children of its call. */
export async function statementNodes(body: TimelineBody): Promise<Shown> {
    const start = body.start ?? 0;
    const code = await linesOf(new Set(body.entries.map((entry) => entry.path)));
    const current = body.entries.findLast((entry) => entry.snapshot <= body.current);
    const shown: Shown = { nodes: [] };
    const nodeOf = (statement: Statement): TreeNode => {
        const { entry, number, below } = statement;
        const text = code.get(entry.path)?.[entry.line - 1]?.trim();
        const parts = [text === undefined ? "" : placeText(entry), entry.function, entry.mark === undefined ? "" : `[${entry.mark}]`];
        const description = parts.filter((part) => part).join("  ");
        const node = makeNode(`snapshot ${entry.snapshot}`, text ?? placeText(entry), "circle-small", {
            description,
            tooltip: vscode.l10n.t("{0}, {1}, with {2} nodes in the graph", entry.function, placeText(entry), entry.nodes),
            children: below.map(nodeOf),
        });
        node.item.command = { command: "dynamo.goToSnapshot", title: vscode.l10n.t("Go There"), arguments: [entry.snapshot] };
        if (entry === current) {
            node.item.iconPath = CURRENT;
            shown.current = { node, number };
        } else if (entry.hasBreakpoint) {
            node.item.iconPath = BREAKPOINT;
        }
        return node;
    };
    const nodes = nested(body.entries, start).map(nodeOf);
    const after = body.total - start - body.entries.length;
    return { ...shown, nodes: [...moreNodes("before", start), ...nodes, ...moreNodes("after", after)] };
}

/** Nests each statement below the statement that called its function. */
function nested(entries: TimelineEntry[], start: number): Statement[] {
    const roots: Statement[] = [];
    const callers: Statement[] = [];
    for (const [index, entry] of entries.entries()) {
        while ((callers.at(-1)?.entry.depth ?? -1) >= entry.depth) {
            callers.pop();
        }
        const statement = { entry, number: start + index + 1, below: [] };
        (callers.at(-1)?.below ?? roots).push(statement);
        callers.push(statement);
    }
    return roots;
}

function moreNodes(where: "before" | "after", count: number): TreeNode[] {
    if (count <= 0) {
        return [];
    }
    const node = makeNode(`more ${where}`, `${count} ${where}`, "ellipsis", { tooltip: vscode.l10n.t("Show more") });
    node.item.command = { command: "dynamo.showMoreOfTimeline", title: vscode.l10n.t("Show More") };
    return [node];
}

/** The lines of those files that can be read. */
async function linesOf(paths: Set<string>): Promise<Map<string, string[]>> {
    const read = async (path: string): Promise<[string, string[]]> => {
        const text = await readFile(path, "utf8").catch(() => "");
        return [path, text.split("\n")];
    };
    return new Map(await Promise.all([...paths].map(read)));
}
