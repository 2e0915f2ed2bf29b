/** Finds a chromium, and installs Debian's package if there is none. */

import { findExecutable, run } from "./commands.js";

const NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/** Arguments to run a browser without a display, without its own sandbox, and without network requests of its own. */
export const CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
];

/** Returns the path of a chromium: `CHROMIUM`, else one on the PATH, else the system's package, which it installs. */
export async function chromium(): Promise<string> {
    const found = process.env.CHROMIUM ?? findExecutable(...NAMES);
    if (found !== undefined) {
        return found;
    }
    const apt = findExecutable("apt-get");
    if (apt === undefined || process.getuid?.() !== 0) {
        throw new Error("No chromium: install chromium or google-chrome, or name one in CHROMIUM.");
    }
    console.log("Installing chromium with apt-get ...");
    const env = { DEBIAN_FRONTEND: "noninteractive" };
    await run(apt, ["update"], { env });
    await run(apt, ["install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core"], { env });
    const installed = findExecutable(...NAMES);
    if (installed === undefined) {
        throw new Error("apt-get installed chromium, but it is not on the PATH.");
    }
    return installed;
}
