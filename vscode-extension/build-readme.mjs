// Writes out/readme.md, the README of the .vsix. VS Code shows only pictures with an https address, or in the text itself.

import { mkdir, readFile, writeFile } from "node:fs/promises";
import { extname } from "node:path";
import { URL } from "node:url";

const PICTURE = /(!\[[^\]]*\]\()(media\/[^)]+)(\))/g;
/** The end of hosts that nobody can own (RFC 2606): pictures with such an address are never found. */
const NOBODY = ".example";

/** Writes the file. Pictures get their address, or become part of the text while the project has no public address. */
export async function buildReadme() {
    const { vsce } = JSON.parse(await readFile("package.json", "utf8"));
    const isPublic = !new URL(vsce.baseImagesUrl).hostname.endsWith(NOBODY);
    const text = await readFile("README.md", "utf8");
    const addresses = new Map();
    for (const [, , path] of text.matchAll(PICTURE)) {
        addresses.set(path, isPublic ? `${vsce.baseImagesUrl}/${path}` : await asData(path));
    }
    await mkdir("out", { recursive: true });
    await writeFile("out/readme.md", text.replace(PICTURE, (_, begin, path, end) => begin + addresses.get(path) + end));
}

async function asData(path) {
    return `data:image/${extname(path).slice(1)};base64,${await readFile(path, "base64")}`;
}
