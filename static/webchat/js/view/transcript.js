/**
 * Defines `<chat-transcript>`, which shows the turns of a conversation, redraws only those that have changed, and
 * follows the newest line.
 */

import { activeTurn } from "../state/reducer.js";
import { isCallOver, isWithdrawn } from "../state/status.js";
import { attachmentList } from "./attachments.js";
import { element, focusedBeside, hasMarked, placeAfter } from "./dom.js";
import { ReadingPlace, rangeAround, TurnHeights } from "./reading_place.js";
import { drawParts } from "./turn_section.js";

/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./tool_call.js").ToolCallElement} ToolCallElement */
/** @typedef {import("./dom.js").View} View */
/** @typedef {import("./turn_section.js").Drawn} Drawn */
/** @typedef {import("./tool_step.js").ToolStepElement} ToolStepElement */

/** The gap between two turns. */
const GAP_PX = 32;
/** The browser may skip rendering all turns but this many of the last ones while they are out of sight. */
const AT_HAND = 2;

/** Draws the turns of `State.turns` near the reading position, and the messages that are still being sent. */
export class ChatTranscriptElement extends HTMLElement {
  /** @type {Map<string, Drawn>} */
  #drawn = new Map();
  #pendingMessages = element("div", { class: "outbox" });
  /** @type {State["pendingMessages"]} */
  #shownMessages = [];
  #place = new ReadingPlace(this);
  #isShown = false;
  /** Placeholders for the turns without elements, before and after those with elements. */
  #above = element("div", { class: "transcript-gap", "aria-hidden": "true", hidden: "" });
  #below = element("div", { class: "transcript-gap", "aria-hidden": "true", hidden: "" });
  #heights = new TurnHeights();
  /** The state and the view that were last drawn. @type {{state: State, view: View}|null} */
  #last = null;
  /** The id of the turn around which turns are drawn, or null for the last turn. @type {string|null} */
  #centre = null;
  #isMoving = false;
  /** The turns whose earlier versions are shown. @type {Set<string>} */
  #opened = new Set();
  /** @type {number|null} */
  #earliest = null;
  #events = new AbortController();
  /** Observes the height, which changes with the running bar, a growing message field and the keyboard of a phone. */
  #resized = new ResizeObserver(() => this.#place.keep());

  /** Whether there are unread lines below the screen. */
  get hasMore() {
    return this.#place.hasMore || (this.#place.isOwn && !this.#below.hidden);
  }

  /** Whether a message is being edited, visible or not. */
  get isEditing() {
    return [...this.#drawn.values()].some(({ section }) => hasEditor(section));
  }

  /** @returns {Array<ToolCallElement>} */
  get cards() {
    return /** @type {Array<ToolCallElement>} */ ([...this.querySelectorAll(".turn:not([hidden]) tool-call")]);
  }

  connectedCallback() {
    this.#events.abort();
    this.#events = new AbortController();
    this.addEventListener("scroll", () => this.#moved(), { signal: this.#events.signal, passive: true });
    this.addEventListener("turn-versions", (event) => this.#toggle(event), { signal: this.#events.signal });
    this.#resized.observe(this);
    this.querySelector(":scope > .outbox")?.remove(); // it exists already if this element is a clone
    this.append(this.#above, this.#below, this.#pendingMessages);
  }

  disconnectedCallback() {
    this.#events.abort();
    this.#resized.disconnect();
  }

  /** Follow the newest line until the person scrolls away. */
  follow() {
    this.#drawAround(null);
    this.#place.toEnd();
  }

  /**
   * Scroll to a message that was just sent. Queued messages are shown above the composer, but here while the connection
   * is down.
   * @param {State} state
   */
  showSent(state) {
    if (activeTurn(state) === null) this.showNext();
    else if (state.connection.frozenAt !== null) this.follow();
  }

  /** Show the next message at the top, with its answer below it. */
  showNext() {
    this.#drawAround(null);
    this.#place.toTurn();
  }

  /** @param {State} all @param {View} view */
  render(all, view) {
    const state = all.turns.some(isWithdrawn) ? { ...all, turns: all.turns.filter((turn) => !isWithdrawn(turn)) } : all;
    const anchor = this.#place.isOwn && state.earliest !== this.#earliest ? this.#anchor() : null;
    this.#earliest = state.earliest;
    this.#last = { state, view };
    if (!this.#place.isOwn) this.#centre = null;
    this.#renderTurns(state, view);
    this.#renderPending(state, view);
    if (anchor) this.scrollTop += topOf(anchor.part) - anchor.top;
    this.#place.settle(this.#turnAtHand(state), this.#isShown);
    this.#isShown = state.phase === "ready";
  }

  /**
   * Draw the turns around the reading position. Placeholders have the total height of the others.
   * @param {State} state
   * @param {View} view
   */
  #renderTurns(state, view) {
    const { turns } = state;
    const place = this.#centre === null ? -1 : turns.findIndex(({ id }) => id === this.#centre);
    const { from, to } = rangeAround(turns, place === -1 ? turns.length - 1 : place);
    const aside = new Set([activeTurn(state)?.id, turns.at(-1)?.id]);
    this.#leaveOut(new Set(turns.slice(from, to).map(({ id }) => id)), aside);
    /** @type {Element} */
    let previous = this.#above;
    let agent = agentBefore(turns, from);
    for (const [index, turn] of turns.slice(from, to).entries()) {
      const newAgent = agent && turn.agent && turn.agent !== agent && !turn.replacedBy ? turn.agent : "";
      const { section } = this.#renderTurn(turn, view, newAgent);
      section.classList.toggle("is-past", from + index < turns.length - AT_HAND);
      placeAfter(this, section, previous);
      previous = section;
      if (!turn.replacedBy) agent = turn.agent || agent;
    }
    setGap(this.#above, this.#heights.sum(turns, 0, from));
    setGap(this.#below, this.#heights.sum(turns, to, turns.length));
    if (turns.some((turn) => turn.replacedBy)) this.#fold();
  }

  /** @param {ReadonlySet<string>} kept the turns that keep their elements @param {ReadonlySet<string|undefined>} aside the turns whose elements are kept outside the page */
  #leaveOut(kept, aside) {
    const removed = [...this.#drawn].filter(([id, { section }]) => !kept.has(id) && section.isConnected);
    const heights = removed.map(([, { section }]) => section.offsetHeight); // all heights are read before the first change, so that the layout is computed only once
    for (const [place, [id, { section }]] of removed.entries()) {
      const height = heights[place] ?? 0;
      this.#heights.note(id, height > 0 ? height + GAP_PX : 0);
      if (section.contains(focusedBeside(this))) this.focus({ preventScroll: true });
      section.remove();
      if (!aside.has(id) && !hasEditor(section)) this.#drawn.delete(id);
    }
  }

  /** Draw other turns when the person scrolls near the end of the drawn ones. */
  #moved() {
    this.#place.moved();
    if (this.#isMoving || (this.#above.hidden && this.#below.hidden)) return;
    this.#isMoving = true;
    requestAnimationFrame(() => {
      this.#isMoving = false;
      if (this.#isNearGap && !this.#isHeld) this.#drawAround(this.#turnInSight());
    });
  }

  get #isNearGap() {
    const { top, bottom, height } = this.getBoundingClientRect();
    const isNear = (/** @type {HTMLElement} */ gap) => {
      if (gap.hidden) return false;
      const place = gap.getBoundingClientRect();
      return place.bottom > top - height && place.top < bottom + height;
    };
    return isNear(this.#above) || isNear(this.#below);
  }

  /** Whether a text is being edited or is selected, so that its elements must be kept. */
  get #isHeld() {
    return hasEditor(this) || hasMarked(this);
  }

  /** @returns {string|null} the id of the turn at the top of the screen */
  #turnInSight() {
    const turns = this.#last?.state.turns ?? [];
    const { top, bottom } = this.getBoundingClientRect();
    for (const [id, { section }] of this.#drawn) {
      const place = section.getBoundingClientRect();
      if (section.isConnected && place.bottom > top && place.top < bottom) return id;
    }
    return turns[this.#heights.at(turns, this.scrollTop)]?.id ?? null;
  }

  /** @param {string|null} centre */
  #drawAround(centre) {
    if (!this.#last || centre === this.#centre) return;
    const anchor = centre === null ? null : this.#anchor();
    this.#centre = centre;
    this.#renderTurns(this.#last.state, this.#last.view);
    if (anchor?.part.isConnected) this.scrollTop += topOf(anchor.part) - anchor.top;
  }

  /**
   * Return the element of the current turn: the active one, or else unsent messages, or else the last turn.
   * @param {State} state
   * @returns {HTMLElement|null}
   */
  #turnAtHand(state) {
    const active = activeTurn(state);
    if (active === null && state.pendingMessages.length > 0) return this.#pendingMessages;
    const turn = active ?? state.turns.findLast(({ isBegun }) => isBegun) ?? state.turns.at(-1);
    return (turn && this.#drawn.get(turn.id)?.section) ?? null;
  }

  /** Return the first visible part of a turn, which stays in place while turns are inserted above it. */
  #anchor() {
    const edge = this.getBoundingClientRect().top;
    const parts = [...this.querySelectorAll(".turn > *")];
    const part = parts.find((part) => part.getBoundingClientRect().bottom > edge);
    return part ? { part, top: topOf(part) } : null;
  }

  /** Update the clocks. @param {View} view */
  tick(view) {
    for (const card of this.cards) if (card.call && (card.call.work || !isCallOver(card.call.status))) card.tick(view);
    const live = '.turn:is([data-status="running"], [data-status="cancelling"]) > tool-step';
    for (const step of this.querySelectorAll(live)) /** @type {ToolStepElement} */ (step).tick(view);
  }

  /** Show or hide the replaced turns above the turn that replaced them. */
  #fold() {
    /** @type {HTMLElement[]} */
    let group = [];
    for (const section of /** @type {NodeListOf<HTMLElement>} */ (this.querySelectorAll(":scope > .turn"))) {
      if (section.classList.contains("is-replaced")) {
        section.hidden = true;
        group.push(section);
        continue;
      }
      const isOpen = this.#opened.has(section.dataset.turnId ?? "");
      for (const earlier of group) earlier.hidden = !isOpen;
      section.querySelector(":scope > .turn-versions")?.setAttribute("aria-expanded", String(isOpen));
      section.hidden = false;
      group = [];
    }
  }

  /** @param {Event} event */
  #toggle(event) {
    const { turnId } = /** @type {CustomEvent<{turnId: string}>} */ (event).detail;
    if (!this.#opened.delete(turnId)) this.#opened.add(turnId);
    const button = /** @type {Element} */ (event.target);
    const before = topOf(button);
    this.#fold();
    this.scrollTop += topOf(button) - before;
  }

  /** @param {Turn} turn @param {View} view @param {string} newAgent @returns {Drawn} */
  #renderTurn(turn, view, newAgent) {
    const before = this.#drawn.get(turn.id);
    const frozen = view.frozenAt !== null;
    const isKnown = before?.turn === turn && before.newAgent === newAgent;
    if (isKnown && before.viewer === view.viewer && before.frozen === frozen) return before;
    const section = before?.section ?? element("section", { class: "turn" });
    const parts = before?.parts ?? new Map();
    const drawn = { turn, viewer: view.viewer, frozen, section, parts, newAgent };
    section.dataset.turnId = turn.id;
    section.classList.toggle("is-replaced", turn.replacedBy !== "");
    section.dataset.status = turn.status;
    drawParts(drawn, view);
    this.#drawn.set(turn.id, drawn);
    return drawn;
  }

  /** @param {State} state @param {View} view */
  #renderPending(state, { i18n, fileUrl = "" }) {
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
          ...(message.attachments ? [attachmentList(message.attachments, i18n, fileUrl)] : []),
          ...(message.text ? [element("div", { class: "message-text", text: message.text })] : []),
          element("p", { class: "message-note", text: i18n.text(label(message)) }),
        ),
      ),
    );
  }
}

/** Return the agent that last answered before a turn. @param {ReadonlyArray<Turn>} turns @param {number} place */
const agentBefore = (turns, place) =>
  turns.slice(0, place).findLast(({ agent, replacedBy }) => agent && !replacedBy)?.agent ?? "";

/** @param {HTMLElement} gap @param {number} height */
function setGap(gap, height) {
  gap.hidden = height === 0;
  const css = `${height}px`;
  if (gap.style.height !== css) gap.style.height = css;
}

/** @param {Element} part */
const hasEditor = (part) => part.querySelector(".message-editor") !== null;

/** @param {Element} part */
const topOf = (part) => part.getBoundingClientRect().top;

customElements.define("chat-transcript", ChatTranscriptElement);
