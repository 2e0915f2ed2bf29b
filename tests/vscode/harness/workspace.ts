/** A copy of the fixtures with a launch.json, to open in VS Code. */

import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { fixtures, placesFile } from "./places.js";

/** File name -> place -> text of its line. */
type Places = Record<string, Record<string, string>>;

const file = { type: "dynamo", request: "launch", program: "${file}", cwd: "${workspaceFolder}" };

/** The text of a launch.json with one configuration, which runs the file in the editor. */
export function launchJson(changes: object): string {
    const configuration = { name: "x", type: "dynamo", request: "launch", program: "${file}", ...changes };
    return JSON.stringify({ version: "0.2.0", configurations: [configuration] }, null, 4);
}

/** The text of a launch.json for a job of two ranks; `program` is their program and its arguments. */
export function jobJson(changes: object, ...program: string[]): string {
    const args = ["--standalone", "--nproc-per-node=2", ...program];
    const job = { name: "job", program: undefined, module: "torch.distributed.run", args, cwd: "${workspaceFolder}" };
    return launchJson({ ...job, ...changes });
}

/** The configurations of the copy's launch.json. */
export const CONFIGURATIONS = [
    { name: "Tracing and generated code", ...file },
    { name: "Tracing only", ...file, mode: "compile-time" },
    { name: "Generated code", ...file, mode: "run-time", stopOnGeneratedCode: true },
    { name: "In a terminal", ...file, console: "integratedTerminal" },
];

export class Workspace {
    constructor(readonly folder: string) {}

    /** Makes a new copy at `folder`. */
    static async make(folder: string, configurations: object[] = CONFIGURATIONS): Promise<Workspace> {
        await rm(folder, { recursive: true, force: true });
        await cp(fixtures, folder, { recursive: true, filter: (path) => !path.includes("__pycache__") });
        await mkdir(join(folder, ".vscode"));
        const launch = { version: "0.2.0", configurations };
        await writeFile(join(folder, ".vscode/launch.json"), JSON.stringify(launch, null, 4));
        return new Workspace(folder);
    }

    /** The 1-based line of a file with the comment `#@marker`, or with the text of that place in `places.json`. */
    async line(name: string, marker: string): Promise<number> {
        const lines = (await readFile(join(this.folder, name), "utf8")).split("\n");
        const text = (JSON.parse(await readFile(placesFile, "utf8")) as Places)[name]?.[marker];
        const index = lines.findIndex((line) => line.trimEnd().endsWith(`#@${marker}`) || line.trim() === text);
        if (index === -1) {
            throw new Error(`${name} has no marker #@${marker}`);
        }
        return index + 1;
    }

    /** Writes a file into the copy. */
    async write(name: string, text: string): Promise<void> {
        await writeFile(join(this.folder, name), text);
    }

    /** Removes a file from the copy. */
    async remove(name: string): Promise<void> {
        await rm(join(this.folder, name));
    }
}
