/** `<chat-transcript>`: the conversation, turn by turn; redraws only what changed and keeps to the newest line. */

import { element, placeAfter } from "./dom.js";
import { ToolCallElement } from "./tool_call.js";
import { drawParts } from "./turn_section.js";

/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./tool_call.js").View} View */
/** @typedef {import("./turn_section.js").Drawn} Drawn */

/** How near to the end counts as reading the newest line. */
const STICK_PX = 80;

/** Draws `State.turns` and the messages that are still on their way. */
export class ChatTranscriptElement extends HTMLElement {
  /** @type {Map<string, Drawn>} */
  #drawn = new Map();
  /** What sub-agents ask, at the end of the conversation that they work for. */
  #questions = element("section", { class: "questions" });
  /** @type {Map<string, ToolCallElement>} */
  #asking = new Map();
  #pendingMessages = element("div", { class: "outbox" });
  /** @type {State["pendingMessages"]} */
  #shownMessages = [];
  #isFollowing = true;
  #lastTop = 0;
  /** @type {number|null} */
  #earliest = null;
  #events = new AbortController();
  /** The running bar, a growing message and a phone's keyboard take height away. */
  #resized = new ResizeObserver(() => {
    if (this.#isFollowing) this.follow();
  });

  /** Whether the newest line is in sight. @returns {boolean} */
  get isAtEnd() {
    return this.scrollHeight - this.scrollTop - this.clientHeight < STICK_PX;
  }

  /** @returns {Array<ToolCallElement>} */
  get cards() {
    return /** @type {Array<ToolCallElement>} */ ([...this.querySelectorAll("tool-call")]);
  }

  get isFollowing() {
    return this.#isFollowing;
  }

  connectedCallback() {
    this.#events.abort();
    this.#events = new AbortController();
    this.addEventListener("scroll", () => this.#scrolled(), { signal: this.#events.signal, passive: true });
    this.#resized.observe(this);
    this.append(this.#questions, this.#pendingMessages); // once: moving them would take their focus away
  }

  disconnectedCallback() {
    this.#events.abort();
    this.#resized.disconnect();
  }

  /** Go to the newest line and stay with it, until the person scrolls away from it. */
  follow() {
    this.#isFollowing = true;
    this.scrollTop = this.scrollHeight;
    this.#lastTop = this.scrollTop;
  }

  /** Bring a card into sight and focus it. @param {string} key its turn and its call */
  show(key) {
    const card = this.cards.find(({ turnId, call }) => `${turnId} ${call?.toolId}` === key);
    if (!card) return;
    const isHigh = card.offsetHeight > this.clientHeight;
    card.scrollIntoView({ block: isHigh ? "start" : "center" });
    card.focus({ preventScroll: true });
  }

  /** Only a move upwards is a wish to read elsewhere: new lines, too, change the distance from the end. */
  #scrolled() {
    const isUpwards = this.scrollTop < this.#lastTop;
    if (this.isAtEnd) this.#isFollowing = true;
    else if (isUpwards) this.#isFollowing = false;
    this.#lastTop = this.scrollTop;
  }

  /** @param {State} state @param {View} view */
  render(state, view) {
    const anchor = this.#isFollowing || state.earliest === this.#earliest ? null : this.#anchor();
    this.#earliest = state.earliest;
    const kept = new Set(state.turns.map((turn) => turn.id));
    for (const [id, drawn] of this.#drawn) {
      if (kept.has(id)) continue;
      drawn.section.remove();
      this.#drawn.delete(id);
    }
    /** @type {Element|null} */
    let previous = this.querySelector(":scope > .transcript-earlier");
    for (const turn of state.turns) {
      const { section } = this.#renderTurn(turn, view);
      placeAfter(this, section, previous);
      previous = section;
    }
    this.#renderQuestions(state, view);
    this.#renderPending(state, view);
    if (this.#isFollowing) this.follow();
    else if (anchor) this.scrollTop += topOf(anchor.part) - anchor.top;
  }

  /** What is read now: it stays where it is while earlier messages are put above it. */
  #anchor() {
    const edge = this.getBoundingClientRect().top;
    const parts = [...this.querySelectorAll(".turn > *")];
    const part = parts.find((part) => part.getBoundingClientRect().bottom > edge);
    return part ? { part, top: topOf(part) } : null;
  }

  /** Repaint the clocks. @param {View} view */
  tick(view) {
    for (const card of this.cards) card.tick(view);
  }

  /** @param {Turn} turn @param {View} view @returns {Drawn} */
  #renderTurn(turn, view) {
    const before = this.#drawn.get(turn.id);
    const frozen = view.frozenAt !== null;
    if (before?.turn === turn && before.viewer === view.viewer && before.frozen === frozen) return before;
    const section = before?.section ?? element("section", { class: "turn" });
    const parts = before?.parts ?? new Map();
    const drawn = { turn, viewer: view.viewer, frozen, section, parts };
    section.dataset.status = turn.status;
    drawParts(drawn, view);
    this.#drawn.set(turn.id, drawn);
    return drawn;
  }

  /** @param {State} state @param {View} view */
  #renderQuestions({ questions }, view) {
    const hadFocus = this.#questions.contains(document.activeElement);
    const wanted = new Set(questions.map(({ turnId, call }) => `${turnId} ${call.toolId}`));
    for (const [key, card] of this.#asking) {
      if (wanted.has(key)) continue;
      card.remove();
      this.#asking.delete(key);
    }
    for (const { turnId, call } of questions) {
      const key = `${turnId} ${call.toolId}`;
      const card = this.#asking.get(key) ?? new ToolCallElement();
      this.#asking.set(key, card);
      if (!card.isConnected) this.#questions.append(card);
      card.show(turnId, call, view);
    }
    this.#questions.setAttribute("aria-label", view.i18n.text("questions"));
    this.#questions.hidden = questions.length === 0;
    if (hadFocus && !this.#questions.contains(document.activeElement))
      (this.#asking.values().next().value ?? this).focus();
  }

  /** @param {State} state @param {View} view */
  #renderPending(state, { i18n }) {
    if (
      this.#shownMessages === state.pendingMessages &&
      this.#pendingMessages.dataset.status === state.connection.status
    )
      return;
    this.#shownMessages = state.pendingMessages;
    this.#pendingMessages.dataset.status = state.connection.status;
    const isLive = state.connection.frozenAt === null;
    /** @param {import("../state/types.js").PendingMessage} message */
    const label = (message) =>
      message.turnId !== null ? "message_queued" : isLive ? "message_sending" : "message_waiting";
    this.#pendingMessages.replaceChildren(
      ...state.pendingMessages.map((message) =>
        element(
          "article",
          { class: "message message-user is-pending" },
          element("div", { class: "message-text", text: message.text }),
          element("p", { class: "message-note", text: i18n.text(label(message)) }),
        ),
      ),
    );
  }
}

/** @param {Element} part */
const topOf = (part) => part.getBoundingClientRect().top;

customElements.define("chat-transcript", ChatTranscriptElement);
