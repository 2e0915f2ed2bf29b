/** A running code-server with its own profile, on a free port. Stopping it also stops its child processes. */

import { spawn } from "node:child_process";
import { openSync } from "node:fs";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { createServer, type AddressInfo } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import type { CodeServer } from "./code-server.js";
import { run } from "./commands.js";
import { serverLog, sessionLog } from "./logs.js";

const START_MILLISECONDS = 60_000;
/** On a very busy machine, code-server may end with "timed out", because its parts wait for each other too long. */
const START_ATTEMPTS = 4;
const STOP_MILLISECONDS = 10_000;

/** The theme of this run. `make pictures` runs the scenes once in each theme. */
export const theme = process.env.DYNAMO_DAP_THEME === "light" ? "light" : "dark";
export const makesScenes = process.env.DYNAMO_DAP_THEME !== undefined;

/** Makes VS Code's processes write which code they run; the extension's build takes the same variable. */
const coverage = process.env.DYNAMO_DAP_COVERAGE === undefined ? {} : { NODE_V8_COVERAGE: process.env.DYNAMO_DAP_COVERAGE };

/** Settings of every profile: no questions, no downloads, nothing that outlives a test. */
const NECESSARY = {
    "workbench.colorTheme": theme === "light" ? "Default Light Modern" : "Default Dark Modern",
    "security.workspace.trust.enabled": false,
    "workbench.enableExperiments": false,
    "workbench.settings.enableNaturalLanguageSearch": false,
    "chat.disableAIFeatures": true,
    "telemetry.telemetryLevel": "off",
    "update.mode": "none",
    "extensions.autoCheckUpdates": false,
    "extensions.autoUpdate": false,
    "git.enabled": false,
    "files.hotExit": "off",
    "window.confirmBeforeClose": "never",
    "debug.toolBarLocation": "docked",
};

/** Settings of a quiet window. */
const QUIET = {
    ...NECESSARY,
    "workbench.startupEditor": "none",
    "workbench.tips.enabled": false,
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "chat.commandCenter.enabled": false,
    "extensions.ignoreRecommendations": true,
    "remote.autoForwardPorts": false,
    "editor.minimap.enabled": false,
    // Otherwise, hints from records of earlier tests would appear in later ones.
    "dynamo.inlayHints": false,
    "debug.openDebug": "openOnDebugBreak",
};

/** Which settings: those of a quiet window, or none, as for a new user. */
export type Profile = "quiet" | "empty";

export interface ServerOptions {
    installation: CodeServer;
    /** A new folder for the profile, extensions, home and logs of this server. */
    folder: string;
    /** Packaged extensions to install. */
    extensions: string[];
    /** Settings of the machine, such as paths of interpreters. */
    settings: Record<string, unknown>;
    port?: number;
    profile?: Profile;
}

export class Server {
    private constructor(
        readonly port: number,
        private readonly group: number,
        private readonly ended: Promise<void>,
        /** The folder of its profile and logs. */
        readonly folder: string,
        /** The server's environment variables, in addition to those of this process. */
        readonly environment: NodeJS.ProcessEnv,
    ) {}

    /** The address that opens `folder`. */
    address(folder: string): string {
        return `http://127.0.0.1:${this.port}/?folder=${encodeURIComponent(folder)}`;
    }

    static async start(options: ServerOptions): Promise<Server> {
        const { folder, installation } = options;
        await rm(folder, { recursive: true, force: true });
        for (const name of ["user/User", "user/Machine", "extensions", "home", "tmp"]) {
            await mkdir(join(folder, name), { recursive: true });
        }
        const users = options.profile === "empty" ? NECESSARY : QUIET;
        await writeFile(join(folder, "user/User/settings.json"), JSON.stringify(users, null, 2));
        await writeFile(join(folder, "user/Machine/settings.json"), JSON.stringify(options.settings, null, 2));
        const profile = ["--user-data-dir", join(folder, "user"), "--extensions-dir", join(folder, "extensions")];
        const env = environment(folder);
        const logFile = serverLog(folder);
        const installs = options.extensions.flatMap((vsix) => ["--install-extension", vsix]);
        await run(installation.node, [installation.entry, ...profile, ...installs], { env, logFile });
        for (let attempt = 1; attempt <= START_ATTEMPTS; attempt += 1) {
            const server = await Server.spawn(options, profile, logFile);
            if (await server.isReady()) {
                return server;
            }
            await server.stop();
        }
        throw new Error(`code-server did not answer; see ${logFile}`);
    }

    private static async spawn({ folder, installation, port }: ServerOptions, profile: string[], logFile: string): Promise<Server> {
        const ownPort = port ?? (await freePort());
        const log = openSync(logFile, "a");
        const flags = ["--auth", "none", "--bind-addr", `127.0.0.1:${ownPort}`, "--disable-telemetry"];
        flags.push("--disable-update-check", "--disable-getting-started-override", "--disable-workspace-trust");
        const child = spawn(installation.node, [installation.entry, ...flags, ...profile], {
            env: { ...process.env, ...environment(folder), DYNAMO_DAP_LOG: sessionLog(folder), ...coverage },
            stdio: ["ignore", log, log],
            detached: true,
        });
        const ended = new Promise<void>((done) => child.on("exit", () => { done(); }));
        if (child.pid === undefined) {
            throw new Error(`${installation.node} cannot be run`);
        }
        return new Server(ownPort, child.pid, ended, folder, environment(folder));
    }

    /** Stops the server and every process of its group: extension hosts, debug adapters, terminals. */
    async stop(): Promise<void> {
        this.signal("SIGTERM");
        if ((await Promise.race([this.ended, sleep(STOP_MILLISECONDS, "late")])) === "late") {
            this.signal("SIGKILL");
            await this.ended;
        }
        this.signal("SIGKILL");
    }

    /** Resolves when the server has ended by itself. */
    async untilEnd(): Promise<void> {
        await this.ended;
    }

    /** Waits until the server answers. Returns false if it ended or took too long. */
    private async isReady(): Promise<boolean> {
        const deadline = Date.now() + START_MILLISECONDS;
        while (Date.now() < deadline) {
            try {
                if ((await fetch(`http://127.0.0.1:${this.port}/healthz`)).ok) {
                    return true;
                }
            } catch {
                // Not listening yet.
            }
            if ((await Promise.race([this.ended, sleep(100, "running")])) !== "running") {
                return false;
            }
        }
        return false;
    }

    private signal(name: NodeJS.Signals): void {
        try {
            process.kill(-this.group, name);
        } catch {
            // The group has ended.
        }
    }
}

/** The additional variables of a server in a folder, which must not write to the user's home or use a marketplace. */
export function environment(folder: string): Record<string, string> & { TMPDIR: string } {
    const home = join(folder, "home");
    return {
        HOME: home,
        XDG_CONFIG_HOME: join(home, "config"),
        XDG_DATA_HOME: join(home, "data"),
        XDG_CACHE_HOME: join(home, "cache"),
        TMPDIR: join(folder, "tmp"),
        EXTENSIONS_GALLERY: "{}",
    };
}

function freePort(): Promise<number> {
    return new Promise((done, fail) => {
        const probe = createServer();
        probe.on("error", fail);
        probe.listen(0, "127.0.0.1", () => {
            const { port } = probe.address() as AddressInfo;
            probe.close(() => { done(port); });
        });
    });
}
