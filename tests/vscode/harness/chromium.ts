/** Finds a chromium, and installs Debian's package if there is none. */

import { findExecutable, run } from "./commands.js";

// The first has no window to draw: it takes a fifth less time of the processor than the others. Old systems do not have it.
const PACKAGES = ["chromium-headless-shell", "chromium"];
const NAMES = [...PACKAGES, "chromium-browser", "google-chrome", "google-chrome-stable"];

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

/** Returns the path of a chromium: `CHROMIUM`, else one on the PATH, else one that it installs with apt-get. */
export async function chromium(): Promise<string> {
    const found = process.env.CHROMIUM ?? findExecutable(...NAMES);
    if (found !== undefined) {
        return found;
    }
    const apt = findExecutable("apt-get");
    if (apt === undefined || process.getuid?.() !== 0) {
        throw new Error("No chromium: install chromium or google-chrome, or name one in CHROMIUM.");
    }
    const env = { DEBIAN_FRONTEND: "noninteractive" };
    await run(apt, ["update"], { env });
    for (const name of PACKAGES) {
        console.log(`Installing ${name} with apt-get ...`);
        await run(apt, ["install", "-y", "--no-install-recommends", name, "fonts-dejavu-core"], { env }).catch((problem: unknown) => {
            if (name === PACKAGES.at(-1)) {
                throw problem;
            }
        });
        const installed = findExecutable(...NAMES);
        if (installed !== undefined) {
            return installed;
        }
    }
    throw new Error("apt-get installed a chromium, but none is on the PATH.");
}
