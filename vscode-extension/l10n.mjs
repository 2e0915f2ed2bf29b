// Writes l10n/bundle.l10n.json, the source of all translations: every text of `vscode.l10n.t` and `localized` in src.
// With
// --check it only compares, and reports texts for users that lack these functions.

import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";

import ts from "typescript";

const FILE = join("l10n", "bundle.l10n.json");
const TRANSLATES = /(^|\.)l10n\.t$|^localized$/;
/** A text for people: several words, or one word that begins with a capital. */
const IS_TEXT = /[A-Za-z…] |^[A-Z][a-z]+|…/;
/** Texts for programs. */
const NOT_FOR_USERS = [
    /^\s*import /, // Python
    /^No module named$|^at $|^a breakpoint is set here$/, // looked for in other texts
    /^(True|False|Inf)$|^Test(Case)?$|^\\\(/, // Python's words
    /^[KMG]iB$|^NaN$|^Arrow(Up|Down)$|^Enter$|^(\{0\} ?)?…( \{1\})?$/,
    /^the page has no #|^#\{0\} is not a field$/, // mistakes in the program
    /^Scripts\//,
    /^> dynamo-dap|-m pip install/, // commands, in a log
    /^default-src /, // a page's policy
    /^With uPlot:/,
    /^(function|compile|guard|node|snapshot|more|finding|cached|line) \{0\}/, // identities of rows
    /^\{0\} (failure|break|size|CUDA graph|attempt|graph|resume|guard) \{1\}$/,
    /^cache entries\.txt$|^code of the call\.py$|^Graph$/, // names of documents
    /^the editor did not start/, // an answer to an assistant
    /^\{0\} \(\{1\}\) of|^\{0\} of \{1\}$/,
];

const texts = new Set();
const problems = [];

/** The text of a literal, with {0} in place of expressions; undefined for other nodes. */
function textOf(node) {
    if (ts.isStringLiteral(node) || ts.isNoSubstitutionTemplateLiteral(node)) {
        return node.text;
    }
    if (ts.isTemplateExpression(node)) {
        return node.head.text + node.templateSpans.map(({ literal }, index) => `{${index}}${literal.text}`).join("");
    }
    return undefined;
}

/** The part of a text that people read: in HTML, the text between tags and in attributes. */
function readable(text) {
    if (text === undefined || !/<\/?[a-z]+/.test(text)) {
        return text;
    }
    const attributes = [...text.matchAll(/(?:title|placeholder|aria-label)="([^"]*)"/g)].map(([, value]) => value);
    return [...attributes, text.replace(/<[^>]*>/g, " ")].join(" ").replace(/\{\d+\}|\s+/g, " ").trim();
}

function read(path) {
    const file = ts.createSourceFile(path, readFileSync(path, "utf8"), ts.ScriptTarget.Latest, true);
    const place = (node) => `${path}:${file.getLineAndCharacterOfPosition(node.getStart(file)).line + 1}`;
    const visit = (node) => {
        if (ts.isImportDeclaration(node) || ts.isTypeNode(node)) {
            return;
        }
        if (ts.isCallExpression(node) && TRANSLATES.test(node.expression.getText(file))) {
            const [first, ...values] = node.arguments;
            if (first !== undefined && ts.isStringLiteral(first)) {
                texts.add(first.text);
            } else {
                problems.push(`${place(node)}: the text is not a literal, so no translation is found`);
            }
            values.forEach(visit);
            return;
        }
        const text = readable(textOf(node));
        if (text !== undefined && IS_TEXT.test(text) && !NOT_FOR_USERS.some((each) => each.test(text))) {
            problems.push(`${place(node)}: ${JSON.stringify(text)} is not translated: vscode.l10n.t("…")`);
        }
        ts.forEachChild(node, visit);
    };
    visit(file);
}

for (const name of readdirSync("src", { recursive: true }).sort()) {
    // The structures are generated, and localized.ts defines `localized`.
    if (name.endsWith(".ts") && name !== join("session", "structures.ts")) {
        read(join("src", name));
    }
}
const catalogue = `${JSON.stringify(Object.fromEntries([...texts].sort().map((text) => [text, text])), null, 2)}\n`;
if (!process.argv.includes("--check")) {
    mkdirSync("l10n", { recursive: true });
    writeFileSync(FILE, catalogue);
} else if (readFileSync(FILE, "utf8") !== catalogue) {
    problems.push(`${FILE} is not that of the sources: npm run l10n`);
}
if (problems.length > 0) {
    console.error(problems.join("\n"));
    process.exitCode = 1;
}
