/** The view "Cache": lists torch's cache entries of each function, opens them as documents, and removes them. */

import * as vscode from "vscode";

import { showInformation } from "../notifications.js";
import type { Compiles } from "../session/compiles.js";
import { requestEntries, requestForget, type CachedFunction, type CacheEntry, type EntryGuard, type ForgetArguments } from "../session/requests.js";
import { errorText } from "../session/stopped-frame.js";
import { linkTo } from "./links.js";
import { makeNode, PullTree, type TreeNode } from "./pull-tree.js";
import { ReadOnlyTexts } from "./read-only-texts.js";

const SHOW = "dynamo.showCacheText";

/** A node of a cache entry or function that can be removed from torch's cache. */
interface ForgettableNode extends TreeNode {
    forgets?: ForgetArguments;
}

/** Registers the view, `dynamo.forgetEntry`, `dynamo.forgetEntries` (of a node's function) and `dynamo.openEntries`. */
export function createEntriesView(compiles: Compiles): vscode.Disposable {
    const texts = new ReadOnlyTexts("dynamo-cache");
    const forget = (node: ForgettableNode): Promise<void> => forgetOf(compiles, node);
    return vscode.Disposable.from(
        texts,
        new PullTree("dynamo.entries", compiles, async (view) => {
            const { functions } = await known(compiles);
            view.description = functions.length === 0 ? "" : count(functions.flatMap((each) => each.entries).length, "entry");
            return functions.map(functionNode);
        }),
        vscode.commands.registerCommand("dynamo.forgetEntry", forget),
        vscode.commands.registerCommand("dynamo.forgetEntries", forget),
        vscode.commands.registerCommand("dynamo.openEntries", () =>
            telling(async () => {
                await texts.show("cache entries.txt", (await known(compiles)).text);
            }),
        ),
        vscode.commands.registerCommand(SHOW, (name: string, text: string) => telling(() => texts.show(name, text))),
    );
}

async function known(compiles: Compiles): Promise<{ functions: CachedFunction[]; text: string }> {
    const session = compiles.activeSession;
    return session === undefined || (await compiles.all()).length === 0 ? { functions: [], text: "" } : requestEntries(session);
}

async function forgetOf(compiles: Compiles, node: ForgettableNode): Promise<void> {
    const { activeSession: session } = compiles;
    await telling(async () => {
        if (session === undefined || node.forgets === undefined) {
            throw new Error(vscode.l10n.t("The session has ended; its cache entries are gone."));
        }
        await requestForget(session, node.forgets);
        compiles.refresh();
    });
}

async function telling(work: () => Promise<void>): Promise<void> {
    try {
        await work();
    } catch (problem) {
        void showInformation(errorText(problem));
    }
}

function functionNode(cached: CachedFunction): TreeNode {
    const node: ForgettableNode = makeNode(`cached ${cached.id}`, cached.name, "symbol-function", {
        description: count(cached.entries.length, "entry"),
        children: cached.entries.map((entry) => entryNode(cached, entry)),
        open: true,
    });
    node.item.contextValue = "dynamoCachedFunction";
    node.forgets = { functionId: cached.id };
    linkTo(node.item, cached);
    return node;
}

function entryNode(cached: CachedFunction, entry: CacheEntry): TreeNode {
    const id = `cached ${cached.id} ${entry.compileId}`;
    const document = (what: string): string => `${cached.name} [${entry.compileId}], ${what}.py`;
    const miss = entry.lastMiss;
    const values = miss?.valueThen === undefined ? "" : `${miss.valueThen} → ${miss.valueNow ?? "?"}`;
    const children = [
        ...(miss === undefined ? [] : [makeNode(`${id} miss`, vscode.l10n.t("Last miss"), "debug-restart", { description: `${miss.text}  ${values}` })]),
        makeNode(`${id} guards`, count(entry.guards.length, "guard"), "shield", {
            children: entry.guards.map((guard, index) => guardNode(`${id} guard ${index}`, guard)),
        }),
        textNode(`${id} code`, vscode.l10n.t("Generated code"), "code", document(vscode.l10n.t("generated code")), entry.code),
        ...entry.graphs.map((graph, index) =>
            graph.code === undefined
                ? makeNode(`${id} graph ${index}`, vscode.l10n.t("Graph {0}", graph.name), "type-hierarchy", { description: vscode.l10n.t("compiled before it was recorded") })
                : textNode(`${id} graph ${index}`, vscode.l10n.t("Graph {0}", graph.name), "type-hierarchy", document(graph.name), graph.code),
        ),
        ...entry.resumes.map((resume, index) => {
            const node = makeNode(`${id} resume ${index}`, vscode.l10n.t("Resumes at line {0}", resume.line), "debug-continue", { description: `${resume.text}  ${resume.generatedName ?? ""}`.trim() });
            linkTo(node.item, resume);
            return node;
        }),
        makeNode(`${id} memory`, vscode.l10n.t("Memory kept alive"), "database", { description: memoryText(entry) }),
    ];
    const calls = entry.calls === undefined ? undefined : vscode.l10n.t("{0} since counting began", count(entry.calls, "call"));
    const node: ForgettableNode = makeNode(id, entry.compileId, "archive", {
        description: [entry.backend, calls].filter((part) => part).join(" · "),
        children,
    });
    node.item.contextValue = "dynamoCacheEntry";
    node.forgets = { functionId: cached.id, compileId: entry.compileId };
    return node;
}

function guardNode(id: string, guard: EntryGuard): TreeNode {
    const failures = guard.failures ?? guard.objectFailures;
    const misses = failures ? count(failures, "time") : undefined;
    const missed = misses && (guard.failures === undefined ? vscode.l10n.t("missed {0} by this or another check", misses) : vscode.l10n.t("missed {0}", misses));
    const details = { tooltip: guard.expression, ...(missed === undefined ? {} : { description: missed }) };
    const node = makeNode(id, guard.text, missed === undefined ? "shield" : "warning", details);
    if (guard.path !== undefined && guard.line !== undefined) {
        linkTo(node.item, { path: guard.path, line: guard.line });
    }
    return node;
}

/** A node that opens a text. */
function textNode(id: string, label: string, icon: string, name: string, text: string): TreeNode {
    const node = makeNode(id, label, icon, { tooltip: text });
    node.item.command = { command: SHOW, title: vscode.l10n.t("Show"), arguments: [name, text] };
    return node;
}

function memoryText({ memory }: CacheEntry): string {
    const parts = [vscode.l10n.t("{0} bytes of generated code", memory.code)];
    if (memory.tensorCount > 0) {
        parts.push(vscode.l10n.t("{0} bytes in {1}", memory.tensors, count(memory.tensorCount, "tensor")));
    }
    if (memory.backendCode > 0) {
        parts.push(vscode.l10n.t("{0} bytes of the backend's code", memory.backendCode));
    }
    const text = parts.join(", ");
    return memory.isWhole === false ? vscode.l10n.t("at least {0}", text) : text;
}

function count(number: number, thing: string): string {
    const many = thing.endsWith("y") ? `${thing.slice(0, -1)}ies` : `${thing}s`;
    return `${number} ${number === 1 ? thing : many}`;
}
