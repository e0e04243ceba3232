/** The state of the connection: the dot in the header, and the banner with what can be done about it. */

import { activeTurn } from "../state/reducer.js";
import { byId, setText } from "./dom.js";

/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("./tool_call.js").View} View */

/** States that the dot in the header shows well enough. */
const WITHOUT_BANNER = new Set(["online", "connecting", "slow"]);
const RECONNECTABLE = new Set(["reconnecting", "offline", "restarting", "busy"]);
/** Catching up mostly takes a moment: a banner would only flash. */
const SHORT_LIVED = new Set(["resuming"]);
const SHORT_LIVED_MS = 700;

export class ConnectionIndicator {
  #dot = byId("connection", HTMLElement);
  #dotText = byId("connection-text", HTMLElement);
  #banner = byId("banner", HTMLElement);
  #bannerText = byId("banner-text", HTMLElement);
  #reconnect = byId("reconnect", HTMLButtonElement);
  #reload = byId("reload", HTMLButtonElement);
  #signIn = byId("sign-in", HTMLAnchorElement);

  /** @param {State} state @param {View} view */
  render(state, { i18n, now }) {
    const { status, frozenAt } = state.connection;
    const isYoung = SHORT_LIVED.has(status) && now - (frozenAt ?? now) < SHORT_LIVED_MS;
    this.#dot.dataset.status = status;
    setText(this.#dotText, i18n.text(`connection_${status}`));
    this.#banner.hidden = WITHOUT_BANNER.has(status) || isYoung;
    this.#banner.dataset.status = status;
    const idle = activeTurn(state) === null ? `banner_${status}_idle` : "";
    const banner = i18n.has(idle) ? idle : `banner_${status}`;
    setText(this.#bannerText, i18n.has(banner) ? i18n.text(banner) : "");
    this.#reconnect.hidden = !RECONNECTABLE.has(status);
    this.#reload.hidden = status !== "outdated";
    this.#signIn.hidden = status !== "signed_out";
  }
}
