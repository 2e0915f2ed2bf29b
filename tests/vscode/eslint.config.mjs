import js from "@eslint/js";
import tseslint from "typescript-eslint";

export default tseslint.config(
    { ignores: ["node_modules/"] },
    js.configs.recommended,
    { files: ["**/*.js"], languageOptions: { sourceType: "commonjs" } },
    {
        files: ["**/*.ts"],
        extends: [...tseslint.configs.strictTypeChecked, ...tseslint.configs.stylisticTypeChecked],
        languageOptions: { parserOptions: { projectService: true } },
        rules: {
            "max-lines": ["error", 200],
            complexity: ["error", 12],
            eqeqeq: "error",
            // Playwright reads the needed fixtures from the parameter's pattern, which may be empty.
            "no-empty-pattern": "off",
            "no-restricted-syntax": [
                "error",
                {
                    selector: "CallExpression[callee.property.name='toPass'] Property[key.name='timeout'][value.value>5000]",
                    message: "What is tried again has LATE, as playwright.config.ts says; only what is inside of it may be shorter.",
                },
                {
                    selector: ":matches(Property[key.name='timeout'][value.value>5000][value.value<60000])",
                    message: "A busy machine takes longer: leave it out, or write LATE.",
                },
            ],
            "@typescript-eslint/explicit-function-return-type": "error",
            "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
        },
    },
);
