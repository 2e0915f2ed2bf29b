import js from "@eslint/js";
import tseslint from "typescript-eslint";

export default tseslint.config(
    { ignores: ["out/", "node_modules/"] },
    js.configs.recommended,
    {
        files: ["src/**/*.ts"],
        extends: [...tseslint.configs.strictTypeChecked, ...tseslint.configs.stylisticTypeChecked],
        languageOptions: { parserOptions: { projectService: true } },
        rules: {
            "max-lines": ["error", 150],
            "max-lines-per-function": ["error", { max: 50, skipComments: true }],
            complexity: ["error", 12],
            eqeqeq: "error",
            "no-restricted-properties": [
                "error",
                ...["Error", "Warning", "Information"].map((kind) => ({
                    property: `show${kind}Message`,
                    message: `A link in its text would run a command: use show${kind} of notifications.ts.`,
                })),
            ],
            "@typescript-eslint/explicit-function-return-type": "error",
            "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
            "@typescript-eslint/no-extraneous-class": "off",
        },
    },
    { files: ["src/notifications.ts"], rules: { "no-restricted-properties": "off" } },
    { files: ["build.mjs", "l10n.mjs"], languageOptions: { globals: { process: "readonly", console: "readonly" } } },
);
