/** The state of the connection: the dot in the header, and the banner with what can be done about it. */

import { activeTurn } from "../state/reducer.js";
import { byId, setText } from "./dom.js";

/** @typedef {import("./dom.js").Root} Root */
/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("./tool_call.js").View} View */

/** States that the dot in the header shows well enough. */
const WITHOUT_BANNER = new Set(["new", "online", "connecting", "slow"]);
const RECONNECTABLE = new Set(["reconnecting", "offline", "restarting", "busy"]);
/** Catching up mostly takes a moment: a banner would only flash. */
const SHORT_LIVED = new Set(["resuming"]);
const SHORT_LIVED_MS = 700;

export class ConnectionIndicator {
  #dot;
  #dotText;
  #banner;
  #bannerText;
  #reconnect;
  #reload;
  #signIn;

  /** @param {Root} root */
  constructor(root) {
    this.#dot = byId(root, "connection", HTMLElement);
    this.#dotText = byId(root, "connection-text", HTMLElement);
    this.#banner = byId(root, "banner", HTMLElement);
    this.#bannerText = byId(root, "banner-text", HTMLElement);
    this.#reconnect = byId(root, "reconnect", HTMLButtonElement);
    this.#reload = byId(root, "reload", HTMLButtonElement);
    this.#signIn = byId(root, "sign-in", HTMLAnchorElement);
  }

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
    this.#reload.hidden = status !== "outdated" && status !== "other_user";
    this.#signIn.hidden = status !== "signed_out";
  }
}
