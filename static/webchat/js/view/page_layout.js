/** Which parts of the page are shown: the skeleton while it loads, the first hints, the way to earlier messages. */

import { byId } from "./dom.js";

/** @typedef {import("../state/types.js").State} State */

/** After these nothing more is loaded. */
const FINAL = new Set(["signed_out", "not_found", "outdated"]);

export class PageLayout {
  #app = byId("chat", HTMLElement);
  #skeleton = byId("skeleton", HTMLElement);
  #empty = byId("empty", HTMLElement);
  #earlier = byId("earlier", HTMLElement);
  #parked = byId("parked", HTMLElement);

  /** @param {State} state */
  render(state) {
    const isReady = state.phase === "ready";
    this.#skeleton.hidden = isReady || FINAL.has(state.connection.status);
    this.#empty.hidden = !isReady || state.turns.length > 0 || state.pendingMessages.length > 0;
    this.#earlier.hidden = !state.hasEarlier;
    this.#earlier.toggleAttribute("data-loading", state.isLoadingEarlier);
    this.#parked.hidden = !state.parked;
    this.#app.toggleAttribute("data-parked", state.parked);
  }
}
