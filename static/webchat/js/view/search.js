/** The field that searches the list of conversations. */

import { byId, isComposing } from "./dom.js";

const PAUSE_MS = 200;

/**
 * @param {(text: string) => void} search called when nothing was typed for a moment
 * @param {() => void} [leave] where the focus goes when Esc was pressed
 */
export function listenToSearch(search, leave = () => {}) {
  const field = byId(document, "conversation-search", HTMLInputElement);
  let timer = 0;
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => search(field.value.trim()), PAUSE_MS);
  });
  // Esc belongs to the field that is open, and cancels no turn.
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || isComposing(event)) return;
    event.preventDefault();
    clearTimeout(timer);
    if (field.value) search("");
    field.value = "";
    field.blur();
    leave();
  });
}
