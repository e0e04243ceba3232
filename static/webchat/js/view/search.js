/** The field that searches the list of conversations. */

import { byId } from "./dom.js";

const PAUSE_MS = 200;

/** @param {(text: string) => void} search called when nothing was typed for a moment */
export function listenToSearch(search) {
  const field = byId(document, "conversation-search", HTMLInputElement);
  let timer = 0;
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => search(field.value.trim()), PAUSE_MS);
  });
}
