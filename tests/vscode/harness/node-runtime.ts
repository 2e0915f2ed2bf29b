/** The node for code-server, which needs a certain major version. The npm registry has node as a package. */

import { existsSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

import { run } from "./commands.js";

export interface NodeRuntime {
    executable: string;
    /** The folder with `include/node`, if it exists. Native parts are then built without a download. */
    root: string | undefined;
}

/** Returns this process's node if it has the wanted major version, else installs one from npm below `destination`. */
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
