/** The parts of the page that depend on the whole state: the skeleton, the examples, the connection, and the notice. */

import { activeTurn, isBusy } from "../state/reducer.js";
import { byId, setText } from "./dom.js";

/** @typedef {import("./dom.js").Root} Root */
/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("./dom.js").View} View */

/** The connection's statuses after which nothing more is loaded. */
const FINAL = new Set(["signed_out", "other_user", "not_found", "outdated"]);

/** Shows and hides the skeleton while the chat loads, the examples, and the button for earlier messages. */
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

/** The connection's statuses for which the dot in the header is enough. */
const WITHOUT_BANNER = new Set(["new", "online", "connecting", "slow"]);
const RECONNECTABLE = new Set(["reconnecting", "offline", "restarting", "busy"]);
/** Statuses that usually end so soon that a banner would only flash. */
const SHORT_LIVED = new Set(["resuming"]);
const SHORT_LIVED_MS = 700;

/** Shows the connection's status with the dot in the header and the banner with its actions. */
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

/** A sentence above the composer about a problem or a request in progress. */
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
