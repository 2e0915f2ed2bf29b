/**
 * Installs code-server, which is VS Code itself served to a browser, from the npm registry.
 *
 * Its own install scripts refuse to run as root, and download from other hosts than the registry. So no install script
 * runs. Instead, `finish` does the necessary steps: it builds native parts, takes `rg` from its npm package, and makes a
 * few links.
 */

import { existsSync } from "node:fs";
import { chmod, copyFile, mkdir, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";

import { run } from "./commands.js";
import { nodeRuntime, type NodeRuntime } from "./node-runtime.js";

/** The tested releases of code-server by VS Code's version, each with the node version that it needs. */
const RELEASES = {
    "1.100": { version: "4.100.3", nodeMajor: 20 },
    "1.139": { version: "4.139.1", nodeMajor: 24 },
};

export type VSCodeVersion = keyof typeof RELEASES;

/** All tests run on this version. The tests of the first minutes also run on the others. */
export const OLDEST: VSCodeVersion = "1.100";
export const NEWEST: VSCodeVersion = "1.139";

const RIPGREP = `@vscode/ripgrep-${process.platform}-${process.arch}`;
/** The native modules of all releases; each release has some of them. */
const NATIVE_MODULES = ["@vscode/spdlog", "native-watchdog", "@vscode/native-watchdog", "node-pty"];

export interface CodeServer {
    node: string;
    entry: string;
}

/** Returns an installed code-server, installing it below `cache` the first time (about a minute). */
export async function codeServer(cache: string, wanted: VSCodeVersion = OLDEST): Promise<CodeServer> {
    const { version, nodeMajor } = RELEASES[wanted];
    const destination = join(cache, `code-server-${version}`);
    const runtime = await nodeRuntime(nodeMajor, join(cache, `node-${nodeMajor}`));
    const complete = join(destination, "complete");
    if (!existsSync(complete)) {
        console.log(`Installing code-server ${version} from npm (once, about a minute) ...`);
        await rm(destination, { recursive: true, force: true });
        await mkdir(destination, { recursive: true });
        await install(destination, version, runtime);
        await writeFile(complete, "");
    }
    return { node: runtime.executable, entry: join(destination, "node_modules/code-server/out/node/entry.js") };
}

async function install(destination: string, version: string, runtime: NodeRuntime): Promise<void> {
    await writeFile(join(destination, "package.json"), '{"private": true}');
    const root = join(destination, "node_modules/code-server");
    const vscode = join(root, "lib/vscode");
    const logFile = join(destination, "install.log");
    const npm = (cwd: string, ...args: string[]): Promise<void> =>
        run("npm", ["install", "--ignore-scripts", "--no-audit", "--no-fund", ...args], { cwd, logFile });
    await npm(destination, `code-server@${version}`, `${RIPGREP}@1.18.0`);
    await npm(vscode, "--omit=dev");
    await npm(join(vscode, "extensions"), "--omit=dev");
    await buildArgon2(destination, logFile);
    for (const name of NATIVE_MODULES) {
        await build(join(vscode, "node_modules", name), runtime, logFile);
    }
    await finish(destination, vscode);
}

/** Builds argon2 from source; otherwise its build downloads a binary from GitHub. */
async function buildArgon2(destination: string, logFile: string): Promise<void> {
    const hoisted = existsSync(join(destination, "node_modules/argon2"));
    const cwd = hoisted ? destination : join(destination, "node_modules/code-server");
    await run("npm", ["rebuild", "argon2"], { cwd, logFile, env: { npm_config_build_from_source: "true" } });
}

async function build(folder: string, runtime: NodeRuntime, logFile: string): Promise<void> {
    const prebuilt = join(folder, "prebuilds", `${process.platform}-${process.arch}`);
    if (!existsSync(folder) || (existsSync(prebuilt) && (await readdir(prebuilt)).some((f) => f.endsWith(".node")))) {
        return;
    }
    const nodeGyp = createRequire(import.meta.url).resolve("node-gyp/bin/node-gyp.js");
    const headers = runtime.root === undefined ? [] : [`--nodedir=${runtime.root}`];
    await run(runtime.executable, [nodeGyp, "rebuild", "--release", ...headers], { cwd: folder, logFile });
}

async function finish(destination: string, vscode: string): Promise<void> {
    const search = join(vscode, "node_modules/@vscode/ripgrep/bin");
    await mkdir(search, { recursive: true });
    await copyFile(join(destination, "node_modules", RIPGREP, "bin/rg"), join(search, "rg"));
    await chmod(join(search, "rg"), 0o755);
    const system = process.platform === "darwin" ? "darwin" : "linux";
    await link("node_modules", join(vscode, "node_modules.asar"));
    await link(`code-${system}.sh`, join(vscode, "bin/remote-cli/code-server"));
    await link(`browser-${system}.sh`, join(vscode, "bin/helpers/browser.sh"));
}

async function link(target: string, path: string): Promise<void> {
    await rm(path, { recursive: true, force: true });
    await symlink(target, path);
}
