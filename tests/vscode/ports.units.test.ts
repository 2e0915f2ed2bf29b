/** Which ports VS Code does not offer to forward. */

import { expect, test } from "@playwright/test";
import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { extensionRoot } from "./harness/places.js";

interface Manifest {
    contributes: { configurationDefaults: { "remote.portsAttributes": Record<string, { onAutoForward: string }> } };
}

test("ports of the debugger's server are not forwarded, those of the program are", async () => {
    const manifest = JSON.parse(await readFile(join(extensionRoot, "package.json"), "utf8")) as Manifest;
    // VS Code matches the key with the command line of the process that listens.
    const [[pattern, attributes] = []] = Object.entries(manifest.contributes.configurationDefaults["remote.portsAttributes"]);
    expect(attributes?.onAutoForward).toBe("ignore");
    expect("/usr/bin/python3 -X utf8 -m dynamo_dap --filters nan,mismatch").toMatch(new RegExp(pattern ?? ""));
    expect("/usr/bin/python3 /x/dynamo_dap/debuggee/launch/entry.py").not.toMatch(new RegExp(pattern ?? ""));
});
