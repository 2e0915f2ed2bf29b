/** Translates the texts of a page, from its beginning on: `openPage` puts the translations of the user's language in. */

import { filledIn, localizeWith } from "../localized.js";
import { byId } from "./elements.js";

const translations = JSON.parse(byId("translations").textContent) as Record<string, string>;

localizeWith((text, ...values) => filledIn(translations[text] ?? text, ...values));
