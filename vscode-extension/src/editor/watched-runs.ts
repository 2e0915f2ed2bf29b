/**
 * Runs `dynamo-dap` commands that print one JSON object and report progress on stderr. Shows the progress, with a
 * button that interrupts the run. The end of the window also ends the process. An output channel keeps the messages.
 */

import { spawn, type ChildProcess } from "node:child_process";
import * as vscode from "vscode";

import { COMMAND } from "../environment/interpreter.js";
import { withoutLinks } from "../session/links-in-texts.js";
import type { Program } from "./programs.js";

const CANCELLED = 130;

interface Ended<T> {
    status: number | null;
    /** The printed object; undefined if nothing was printed. */
    answer: T | undefined;
    lastSaid: string;
}

export class WatchedRuns implements vscode.Disposable {
    private readonly texts: vscode.OutputChannel;
    private readonly running = new Set<ChildProcess>();

    /** `name` is the name of the output channel. */
    constructor(name: string) {
        this.texts = vscode.window.createOutputChannel(name);
    }

    dispose(): void {
        this.texts.dispose();
        for (const child of this.running) {
            child.kill("SIGINT");
        }
    }

    /** Shows the messages of all runs. */
    show(): void {
        this.texts.show();
    }

    /** Adds a text to these messages. */
    note(text: string): void {
        this.texts.append(text);
    }

    /** Runs a command on a program. Rejects with the last message if it prints nothing; undefined if cancelled. */
    async answer<T>(title: string, program: Program, words: string[]): Promise<T | undefined> {
        const { answer, status, lastSaid } = await this.run<T>(title, program, words);
        if (answer === undefined && status !== CANCELLED) {
            throw new Error(lastSaid === "" ? vscode.l10n.t("The command ended with {0}.", status ?? vscode.l10n.t("a signal")) : lastSaid);
        }
        return answer;
    }

    private async run<T>(title: string, program: Program, words: string[]): Promise<Ended<T>> {
        const options = { location: vscode.ProgressLocation.Notification, title: withoutLinks(title), cancellable: true };
        return vscode.window.withProgress(options, (progress, token) => {
            const { cwd, env, python: [executable = "", ...flags] } = program;
            const all = [...words, "--python", executable, ...program.words];
            this.texts.appendLine(`> dynamo-dap ${all.join(" ")}`);
            const child = spawn(executable, [...flags, "-c", COMMAND, ...all], { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
            this.running.add(child);
            token.onCancellationRequested(() => child.kill("SIGINT"));
            let [printed, lastSaid] = ["", ""];
            child.stdout.setEncoding("utf8").on("data", (text: string) => { printed += text; });
            child.stderr.setEncoding("utf8").on("data", (text: string) => {
                this.texts.append(text);
                const message = text.trim().split("\n").at(-1) ?? "";
                lastSaid = message === "" ? lastSaid : message;
                progress.report({ message: withoutLinks(lastSaid) });
            });
            return new Promise<Ended<T>>((done, refuse) => {
                child.on("error", refuse);
                child.on("close", (status) => {
                    this.running.delete(child);
                    done({ status, answer: printed.trim() === "" ? undefined : (JSON.parse(printed) as T), lastSaid });
                });
            });
        });
    }
}
