/** Translates the texts of a page, with the translations that `openPage` puts into the page. Imported first. */

import { filledIn, localizeWith } from "../localized.js";
import { byId } from "./elements.js";

const translations = JSON.parse(byId("translations").textContent) as Record<string, string>;

localizeWith((text, ...values) => filledIn(translations[text] ?? text, ...values));
