/** Which parts of the page are shown: the skeleton while it loads, the first hints, the way to earlier messages. */

import { isBusy } from "../state/reducer.js";
import { byId } from "./dom.js";

/** @typedef {import("./dom.js").Root} Root */
/** @typedef {import("../state/types.js").State} State */

/** After these nothing more is loaded. */
const FINAL = new Set(["signed_out", "other_user", "not_found", "outdated"]);

export class PageLayout {
  #app;
  #skeleton;
  #empty;
  #earlier;
  #parked;

  /** @param {Root} root */
  constructor(root) {
    this.#app = byId(root, "chat", HTMLElement);
    this.#skeleton = byId(root, "skeleton", HTMLElement);
    this.#empty = byId(root, "empty", HTMLElement);
    this.#earlier = byId(root, "earlier", HTMLElement);
    this.#parked = byId(root, "parked", HTMLElement);
  }

  /** @param {State} state */
  render(state) {
    const isReady = state.phase === "ready";
    this.#skeleton.hidden = isReady || FINAL.has(state.connection.status);
    this.#empty.hidden = !isReady || state.turns.length > 0 || state.pendingMessages.length > 0;
    this.#earlier.hidden = !state.hasEarlier;
    this.#earlier.toggleAttribute("data-loading", state.isLoadingEarlier);
    this.#parked.hidden = !state.parked;
    this.#app.toggleAttribute("data-parked", state.parked);
    this.#app.toggleAttribute("data-busy", isBusy(state));
  }
}
