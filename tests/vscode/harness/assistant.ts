/** A coding assistant: the client of the MCP SDK, which starts the server with the given configuration. */

import { spawn, type ChildProcessWithoutNullStreams } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { repository } from "./places.js";
import { python } from "./python.js";

const SCRIPT = join(repository, "tests", "assistants", "spoken_to.py");
const SECONDS = 100;

/** The answer of a tool. */
export interface Answer {
    text: string;
    data: { state?: string; function?: string; line?: number; exitCode?: number | null } | null;
    isError: boolean;
}

export class Assistant {
    private readonly answers: AsyncIterator<string>;
    private problems = "";

    private constructor(private readonly process: ChildProcessWithoutNullStreams) {
        this.answers = createInterface({ input: process.stdout })[Symbol.asyncIterator]();
        process.stderr.on("data", (data: Buffer) => { this.problems += data.toString(); });
    }

    /** Starts an assistant; `configuration` is the text of its configuration. */
    static start(configuration: string): Assistant {
        const started = new Assistant(spawn(python(), [SCRIPT]));
        started.process.stdin.write(`${JSON.stringify(JSON.parse(configuration))}\n`);
        return started;
    }

    /** Calls a tool and returns its answer, which may be an error. */
    async ask(tool: string, given: object = {}): Promise<Answer> {
        this.process.stdin.write(`${JSON.stringify({ tool, arguments: given })}\n`);
        const late = new Promise<undefined>((done) => { setTimeout(done, SECONDS * 1000, undefined).unref(); });
        const line = await Promise.race([this.answers.next(), late]);
        if (line === undefined || line.done === true) {
            throw new Error(`no answer of ${tool} within ${SECONDS} s: ${this.problems}`);
        }
        return JSON.parse(line.value) as Answer;
    }

    /** Ends the assistant, which also ends its server. */
    end(): void {
        this.process.stdin.end();
        this.process.kill();
    }
}
