/** The elements of a tensor's page, which the page's script fills. */

import * as vscode from "vscode";

import { asHtml } from "./page.js";

/** The page's HTML, in the user's language. */
export function tensorPage(): string {
    const text = {
        minus: asHtml(vscode.l10n.t("Minus")),
        other: asHtml(vscode.l10n.t("another tensor")),
        difference: asHtml(vscode.l10n.t("An expression to subtract, to show the difference")),
        elements: asHtml(vscode.l10n.t("Elements")),
        find: asHtml(vscode.l10n.t("Find")),
        wanted: asHtml(vscode.l10n.t("nan, inf, a number, or a comparison such as > 0.5; Enter goes to the next")),
        rowsWith: asHtml(vscode.l10n.t("Rows with")),
        filter: asHtml(vscode.l10n.t("Show only rows that contain nan, inf, a number, or a match of a comparison such as > 0.5")),
        digits: asHtml(vscode.l10n.t("Digits")),
        allDigits: asHtml(vscode.l10n.t("all")),
        statistics: asHtml(vscode.l10n.t("Statistics")),
        histogram: asHtml(vscode.l10n.t("Histogram")),
        logarithmic: asHtml(vscode.l10n.t("logarithmic")),
        picture: asHtml(vscode.l10n.t("Picture")),
        kind: asHtml(vscode.l10n.t("Kind of picture")),
    };
    return `
<header>
  <span id="name"></span><span id="text"></span><span id="note"></span><span id="stop"></span>
  <label>${text.minus} <input type="text" id="minus" placeholder="${text.other}" title="${text.difference}"></label>
  <span id="problem" role="alert"></span>
</header>
<main>
  <section id="elements">
    <div class="heading"><h2 id="table-title">${text.elements}</h2><label>${text.find} <input type="text" id="find" size="10" placeholder="&gt; 0.5" title="${text.wanted}"> <span id="found" aria-live="polite"></span></label><label>${text.rowsWith} <input type="text" id="rows-with" size="8" title="${text.filter}"> <span id="rows-left" aria-live="polite"></span></label><label>${text.digits} <select id="digits"><option value="0">${text.allDigits}</option><option>2</option><option>3</option><option>4</option><option>6</option></select></label></div>
    <div id="selection"></div>
    <div id="scroller" tabindex="0" role="grid" aria-labelledby="table-title" aria-activedescendant="active-cell"><div id="sizer"><div id="window"><table id="cells" role="presentation"></table></div></div></div>
    <div id="cell" aria-live="polite"></div>
  </section>
  <div id="side">
    <section><h2>${text.statistics}</h2><div id="statistics"></div></section>
    <section>
      <div class="heading"><h2>${text.histogram}</h2><label><input type="checkbox" id="logarithmic"> ${text.logarithmic}</label></div>
      <div id="histogram" role="img"></div>
    </section>
    <section id="picture-section">
      <div class="heading"><h2>${text.picture}</h2><select id="kind" aria-label="${text.kind}"></select></div>
      <div id="picture"></div><div id="legend"></div><p id="picture-note"></p>
    </section>
  </div>
</main>`;
}
