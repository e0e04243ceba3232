/** The notice above the composer: one sentence about something that went wrong, or that is under way. */

import { byId, setText } from "./dom.js";

/** @typedef {import("./dom.js").Root} Root */
/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("./tool_call.js").View} View */

export class Notice {
  #box;
  #text;

  /** @param {Root} root */
  constructor(root) {
    this.#box = byId(root, "notice", HTMLElement);
    this.#text = byId(root, "notice-text", HTMLElement);
  }

  /** @param {State} state @param {View} view */
  render({ notice }, { i18n }) {
    this.#box.hidden = notice === null;
    if (notice === null) return;
    this.#box.dataset.level = notice.level;
    setText(this.#text, i18n.text(notice.key, notice.params));
  }
}
