/** The node that runs code-server: it wants one major version, which the npm registry has as a package. */

import { existsSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

import { run } from "./commands.js";

export interface NodeRuntime {
    executable: string;
    /** The folder that holds `include/node`, if it is there: native parts are then built without a download. */
    root: string | undefined;
}

/** This process's node if it has the wanted major version, else one installed from npm below `destination`. */
export async function nodeRuntime(major: number, destination: string): Promise<NodeRuntime> {
    if (process.versions.node.startsWith(`${major}.`)) {
        return describe(process.execPath);
    }
    const name = `node-${process.platform}-${process.arch}`;
    const executable = join(destination, "node_modules", name, "bin", "node");
    if (!existsSync(executable)) {
        await mkdir(destination, { recursive: true });
        await writeFile(join(destination, "package.json"), '{"private": true}');
        await run("npm", ["install", "--no-audit", "--no-fund", `${name}@${major}`], { cwd: destination });
    }
    return describe(executable);
}

function describe(executable: string): NodeRuntime {
    const root = dirname(dirname(executable));
    return { executable, root: existsSync(join(root, "include", "node", "node.h")) ? root : undefined };
}
