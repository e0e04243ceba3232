/** `<chat-transcript>`: the conversation, turn by turn; redraws only what changed and keeps to the newest line. */

import { activeTurn } from "../state/reducer.js";
import { isCallOver } from "../state/status.js";
import { attachmentList } from "./attachments.js";
import { element, focusedBeside, hasMarked, placeAfter } from "./dom.js";
import { ReadingPlace } from "./reading_place.js";
import { drawParts } from "./turn_section.js";
import { rangeAround, TurnHeights } from "./turn_window.js";

/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./tool_call.js").ToolCallElement} ToolCallElement */
/** @typedef {import("./tool_call.js").View} View */
/** @typedef {import("./turn_section.js").Drawn} Drawn */
/** @typedef {import("./tool_step.js").ToolStepElement} ToolStepElement */

/** The gap between turns. */
const GAP_PX = 32;
/** So many of the last turns are drawn whether they are in sight or not. */
const AT_HAND = 2;

/** Draws those of `State.turns` that are near to what is read, and the messages that are still on their way. */
export class ChatTranscriptElement extends HTMLElement {
  /** @type {Map<string, Drawn>} */
  #drawn = new Map();
  #pendingMessages = element("div", { class: "outbox" });
  /** @type {State["pendingMessages"]} */
  #shownMessages = [];
  #place = new ReadingPlace(this);
  #isShown = false;
  /** What stands for the turns without elements, before and behind those that have them. */
  #above = element("div", { class: "transcript-gap", "aria-hidden": "true", hidden: "" });
  #below = element("div", { class: "transcript-gap", "aria-hidden": "true", hidden: "" });
  #heights = new TurnHeights();
  /** What was drawn last, and for whom. @type {{state: State, view: View}|null} */
  #last = null;
  /** The turn around which the others are drawn; null = the last one. @type {string|null} */
  #centre = null;
  #isMoving = false;
  /** The turns whose earlier forms are shown. @type {Set<string>} */
  #opened = new Set();
  /** @type {number|null} */
  #earliest = null;
  #events = new AbortController();
  /** The running bar, a growing message and a phone's keyboard take height away. */
  #resized = new ResizeObserver(() => this.#place.keep());

  /** Whether lines stand below the screen that nobody follows. */
  get hasMore() {
    return this.#place.hasMore || (this.#place.isOwn && !this.#below.hidden);
  }

  /** Whether a message is being edited, in sight or not. */
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
    this.querySelector(":scope > .outbox")?.remove(); // of a copy
    this.append(this.#above, this.#below, this.#pendingMessages);
  }

  disconnectedCallback() {
    this.#events.abort();
    this.#resized.disconnect();
  }

  /** Go to the newest line and stay with it, until the person scrolls away from it. */
  follow() {
    this.#drawAround(null);
    this.#place.toEnd();
  }

  /** Show a message that was sent in this state: what waits for a running turn is above the composer, unless it cannot be sent. @param {State} state */
  showSent(state) {
    if (activeTurn(state) === null) this.showNext();
    else if (state.connection.frozenAt !== null) this.follow();
  }

  /** Put what is said next at the top, with its answer below it. */
  showNext() {
    this.#drawAround(null);
    this.#place.toTurn();
  }

  /** @param {State} state @param {View} view */
  render(state, view) {
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

  /** The turns around the one that is read; what stands for the others has their height. @param {State} state @param {View} view */
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

  /** @param {ReadonlySet<string>} kept the turns that keep their elements @param {ReadonlySet<string|undefined>} aside those whose elements are only put aside */
  #leaveOut(kept, aside) {
    const gone = [...this.#drawn].filter(([id, { section }]) => !kept.has(id) && section.isConnected);
    const heights = gone.map(([, { section }]) => section.offsetHeight); // all are read before the first is changed
    for (const [place, [id, { section }]] of gone.entries()) {
      const height = heights[place] ?? 0;
      this.#heights.note(id, height > 0 ? height + GAP_PX : 0);
      if (section.contains(focusedBeside(this))) this.focus({ preventScroll: true });
      section.remove();
      if (!aside.has(id) && !hasEditor(section)) this.#drawn.delete(id);
    }
  }

  /** Others are drawn when the person comes near to where the elements end. */
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

  /** What is being written or marked keeps its elements. */
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

  /** What is at work; if nothing is, the last that was. What was never sent stands below it. @param {State} state @returns {HTMLElement|null} */
  #turnAtHand(state) {
    const active = activeTurn(state);
    if (active === null && state.pendingMessages.length > 0) return this.#pendingMessages;
    const turn = active ?? state.turns.findLast(({ isBegun }) => isBegun) ?? state.turns.at(-1);
    return (turn && this.#drawn.get(turn.id)?.section) ?? null;
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
    for (const card of this.cards) if (card.call && (card.call.work || !isCallOver(card.call.status))) card.tick(view);
    const live = '.turn:is([data-status="running"], [data-status="cancelling"]) > tool-step';
    for (const step of this.querySelectorAll(live)) /** @type {ToolStepElement} */ (step).tick(view);
  }

  /** What was replaced stands, out of sight, above the turn that is in its place. */
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

/** Who has answered last before a turn. @param {ReadonlyArray<Turn>} turns @param {number} place */
const agentBefore = (turns, place) =>
  turns.slice(0, place).findLast(({ agent, replacedBy }) => agent && !replacedBy)?.agent ?? "";

/** @param {HTMLElement} gap @param {number} height */
function setGap(gap, height) {
  gap.hidden = height === 0;
  const wanted = `${height}px`;
  if (gap.style.height !== wanted) gap.style.height = wanted;
}

/** @param {Element} part */
const hasEditor = (part) => part.querySelector(".message-editor") !== null;

/** @param {Element} part */
const topOf = (part) => part.getBoundingClientRect().top;

customElements.define("chat-transcript", ChatTranscriptElement);
