/** A program that an assistant debugs is an ordinary session for the user, who sees its stops and can step. */

import { statSync } from "node:fs";
import { dirname } from "node:path";

import { Assistant } from "./harness/assistant.js";
import { at } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";

const FILE = "basic.py";

test("an assistant and the user debug one program", async ({ vscode, workspace, picture }) => {
    const { compiles, debug, editor, page } = vscode;
    const line = (marker: string): Promise<number> => workspace.line(FILE, marker);
    const [helper, total] = [await line("in_helper"), await line("total")];
    await vscode.openFile(FILE);
    await editor.setBreakpoint(total);
    await vscode.command("torch.compile: Show MCP Server Configuration");
    let configuration = "";
    await expect(async () => {
        // The editor renders the lines one by one.
        configuration = await editor.text();
        expect(JSON.parse(configuration)).toHaveProperty("mcpServers");
    }, "the configuration is shown").toPass();
    const socket = /"DYNAMO_DAP_EDITOR": "(.*)"/.exec(configuration)?.[1] ?? "";
    expect(statSync(dirname(socket)).mode & 0o077, "only the user comes to the socket").toBe(0);
    const assistant = Assistant.start(configuration);
    try {
        const first = await assistant.ask("debug_launch", { program: FILE, breakpoints: [{ file: FILE, line: helper }] });
        expect(first.text).not.toContain("does not see");
        expect(first.data).toMatchObject({ state: "stopped", function: "scale", line: helper });
        await debug.waitForStop(at("scale", FILE, helper));
        await expect(debug.row("variables", "factor =")).toContainText("2");
        await compiles.show("Compiles");
        await expect(compiles.row("Compiles", "compute")).toBeVisible();
        await picture("assistant");

        // The assistant gets a report of the user's step, and the user sees the assistant's step.
        await debug.press("F10");
        await debug.waitForStop(at("scale", FILE, helper + 1));
        const looked = await assistant.ask("debug_evaluate", { expression: "factor" });
        expect(looked.data).toMatchObject({ line: helper + 1 });
        const stepped = await assistant.ask("debug_go", { how: "out" });
        expect(stepped.data).toMatchObject({ function: "compute" });
        await debug.waitForStop(at("compute", FILE, stepped.data?.line ?? 0));
        // The user's own breakpoint stops for both.
        await debug.press("F5");
        await debug.waitForStop(at("compute", FILE, total));
        expect((await assistant.ask("wait")).data).toMatchObject({ state: "stopped", line: total });

        await debug.noteStart();
        await debug.press("Shift+F5");
        await debug.waitForEnd();
        expect((await assistant.ask("debug_where")).text).toContain("has ended");

        // Another session, which the assistant ends.
        await assistant.ask("debug_launch", { program: FILE, breakpoints: [{ file: FILE, line: helper }] });
        await debug.waitForStop(at("scale", FILE, helper));
        await debug.noteStart();
        expect((await assistant.ask("end")).data).toMatchObject({ state: "ended" });
        await debug.waitForEnd();
        await expect(page.locator(".notification-toast")).toHaveCount(0);
    } finally {
        assistant.end();
    }
});
