/** What stands around the transcript: the connection's state, the running bar, the notice, the first hints. */

import { askedCount } from "./approval.js";
import { byId, setText } from "./dom.js";
import { activeTurn, queuedCount } from "./reducer.js";
import { elapsedOf, isCallOver } from "./status.js";
import { stoppingWords } from "./words.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./tool_call.js").View} View */

/** States that the dot in the header shows well enough. */
const WITHOUT_BANNER = new Set(["online", "connecting", "slow"]);
const FINAL = new Set(["signed_out", "not_found", "outdated"]);
/** Catching up is over in a moment, mostly: a banner would only flash. */
const SHORT_LIVED = new Set(["resuming"]);
const SHORT_LIVED_MS = 700;
/** "21 s" is not torn apart where the bar is narrow. */
const NO_BREAK = "\u00a0";

/** Draws everything outside the transcript from the state. */
export class Surroundings {
  #dot = byId("connection", HTMLElement);
  #dotText = byId("connection-text", HTMLElement);
  #banner = byId("banner", HTMLElement);
  #bannerText = byId("banner-text", HTMLElement);
  #reconnect = byId("reconnect", HTMLButtonElement);
  #reload = byId("reload", HTMLButtonElement);
  #signIn = byId("sign-in", HTMLAnchorElement);
  #bar = byId("running-bar", HTMLElement);
  #barText = byId("running-text", HTMLElement);
  #queued = byId("running-queued", HTMLElement);
  #cancel = byId("cancel-turn", HTMLButtonElement);
  #cancelLabel = byId("cancel-turn-label", HTMLElement);
  #notice = byId("notice", HTMLElement);
  #noticeText = byId("notice-text", HTMLElement);
  #parked = byId("parked", HTMLElement);
  #app = byId("chat", HTMLElement);
  #empty = byId("empty", HTMLElement);
  #earlier = byId("earlier", HTMLElement);
  #skeleton = byId("skeleton", HTMLElement);
  #title = document.title;
  /** @type {HTMLElement|null} */
  #listed = document.querySelector(".sidebar-link[aria-current] .sidebar-active");

  /** @param {State} state @param {View} view */
  render(state, view) {
    const isEmpty = state.phase === "ready" && state.turns.length === 0 && state.outbox.length === 0;
    this.#empty.hidden = !isEmpty;
    this.#skeleton.hidden = state.phase === "ready" || FINAL.has(state.connection.status);
    this.#earlier.hidden = !state.hasEarlier;
    this.#earlier.toggleAttribute("data-loading", state.isLoadingEarlier);
    if (this.#listed && state.phase === "ready") this.#listed.hidden = activeTurn(state) === null;
    this.#parked.hidden = !state.parked;
    this.#app.toggleAttribute("data-parked", state.parked);
    this.#renderNotice(state, view);
    this.#callForAttention(state, view);
    this.tick(state, view);
  }

  /** Repaint what time changes. @param {State} state @param {View} view */
  tick(state, view) {
    this.#renderConnection(state, view);
    this.#renderBar(state, view);
  }

  /** Somebody who looks at another tab sees there that a decision is wanted. @param {State} state @param {View} view */
  #callForAttention({ turns }, { words }) {
    const asked = askedCount(turns);
    const title = asked > 0 ? words.text("title_asked", { title: this.#title }) : this.#title;
    if (document.title !== title) document.title = title;
  }

  /** @param {State} state @param {View} view */
  #renderConnection(state, { words, now }) {
    const { status, frozenAt } = state.connection;
    const isYoung = SHORT_LIVED.has(status) && now - (frozenAt ?? now) < SHORT_LIVED_MS;
    this.#dot.dataset.status = status;
    setText(this.#dotText, words.text(`connection_${status}`));
    this.#banner.hidden = WITHOUT_BANNER.has(status) || isYoung;
    this.#banner.dataset.status = status;
    const idle = activeTurn(state) === null ? `banner_${status}_idle` : "";
    const banner = words.has(idle) ? idle : `banner_${status}`;
    setText(this.#bannerText, words.has(banner) ? words.text(banner) : "");
    this.#reconnect.hidden = !["reconnecting", "offline", "restarting", "busy"].includes(status);
    this.#reload.hidden = status !== "outdated";
    this.#signIn.hidden = status !== "signed_out";
  }

  /** @param {State} state @param {View} view */
  #renderBar(state, { words, now, frozenAt }) {
    const turn = activeTurn(state);
    const hadFocus = document.activeElement === this.#cancel;
    this.#bar.hidden = turn === null;
    if (turn !== null) {
      const tools = Object.values(turn.calls).filter((call) => !isCallOver(call.status)).length;
      const isAsking = askedCount([turn]) > 0;
      const doing = words.text(turn.status === "queued" ? "bar_queued" : isAsking ? "bar_asked" : "bar_working");
      const facts = [];
      if (tools > 0 && !isAsking) facts.push(words.count("bar_tools", tools));
      if (turn.status !== "queued") facts.push(words.wholeClock(elapsedOf(turn, now, frozenAt)));
      this.#bar.classList.toggle("is-asking", isAsking);
      setText(this.#barText, [doing, ...facts.map((fact) => fact.replaceAll(" ", NO_BREAK))].join(" · "));
      const queued = queuedCount(state);
      setText(this.#queued, queued > 0 ? words.count("bar_queue", queued) : "");
      const isStopping = turn.stoppingAt !== null;
      this.#bar.classList.toggle("is-stopping", isStopping);
      this.#cancel.disabled = isStopping;
      setText(
        this.#cancelLabel,
        turn.stoppingAt === null ? words.text("cancel_turn") : stoppingWords(words, turn.stoppingAt, { now, frozenAt }),
      );
    }
    if (hadFocus && (this.#bar.hidden || this.#cancel.disabled)) this.#moveFocus();
  }

  /** To where writing goes on; not on a touch screen, where that would open its keyboard. */
  #moveFocus() {
    byId(matchMedia("(hover: hover)").matches ? "composer-input" : "transcript", HTMLElement).focus();
  }

  /** @param {State} state @param {View} view */
  #renderNotice({ notice }, { words }) {
    this.#notice.hidden = notice === null;
    if (notice === null) return;
    this.#notice.dataset.level = notice.level;
    setText(this.#noticeText, words.text(notice.key, notice.params));
  }
}
