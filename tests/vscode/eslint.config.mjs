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
            "@typescript-eslint/explicit-function-return-type": "error",
            "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
        },
    },
);
