/** The search box of a tensor's page: `nan`, `inf`, a number or a comparison; Enter goes from match to match. */

import type { TensorBody } from "../session/structures.js";
import { localized } from "../localized.js";
import { byId, field } from "./elements.js";
import type { Wanted } from "./messages.js";

/** Registers the search box. `askFor` searches; `goTo` shows the element at an index. */
export function searchBy(askFor: (wanted: Wanted) => Promise<TensorBody>, goTo: (index: number[]) => void): void {
    let after = -1;
    const find = field("find");
    find.addEventListener("input", () => {
        after = -1;
        byId("found").textContent = "";
    });
    byId("find").addEventListener("keydown", (event) => {
        if (event.key !== "Enter" || find.value.trim() === "") {
            return;
        }
        byId("found").textContent = "";
        askFor({ show: "match", find: find.value, after }).then(
            ({ match }) => {
                if (match !== undefined) {
                    after = match.position;
                    byId("found").textContent = localized("{0} of {1}", match.number.toLocaleString("en"), match.count.toLocaleString("en"));
                    goTo(match.index);
                }
            },
            () => undefined,  // The page shows the reason.
        );
    });
}
