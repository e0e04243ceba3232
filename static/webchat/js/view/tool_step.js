/**
 * Defines `<tool-step>`, a block with a header for the calls of one step. After the turn, successful calls are
 * collapsed.
 */

import { elapsedOf, isCallOver, isTurnOver } from "../state/status.js";
import { element, focusedBeside, icon, placeAfter, setText } from "./dom.js";
import { ToolCallElement } from "./tool_call.js";

/** @typedef {import("../state/types.js").Call} Call */
/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./dom.js").View} View */

/** Up to this many hidden cards are created anyway, because they are cheap. */
const FEW = 8;

let count = 0;

export class ToolStepElement extends HTMLElement {
  #head = element("button", { class: "step-head", type: "button" });
  #words = element("span", { class: "step-words" });
  #cards = element("div", { class: "step-cards" });
  /** @type {Map<string, ToolCallElement>} */
  #cardsById = new Map();
  /** @type {ReadonlyArray<Call>} */
  #calls = [];
  #isOver = false;
  #turnId = "";
  /** @type {View|null} */
  #view = null;
  /** The view with which the cards were last drawn. @type {View|null} */
  #drawnFor = null;
  /**
   * Whether the person has expanded the block, or null if the person has not clicked yet. Then the turn's status
   * decides.
   * @type {boolean|null}
   */
  #isOpen = null;

  connectedCallback() {
    if (this.#head.isConnected) return;
    count += 1;
    this.#cards.id = `step-cards-${count}`;
    this.#head.setAttribute("aria-controls", this.#cards.id);
    this.#head.append(icon("chevron"), this.#words);
    this.#head.addEventListener("click", () => {
      this.#isOpen = !this.#isShown();
      if (this.#view) this.#drawCards(this.#view);
      this.#fold();
    });
    this.classList.add("step");
    this.append(this.#head, this.#cards);
  }

  /** @param {Turn} turn @param {ReadonlyArray<string>} toolIds @param {View} view */
  show(turn, toolIds, view) {
    const calls = toolIds.flatMap((toolId) => turn.calls[toolId] ?? []);
    const isOver = isTurnOver(turn.status);
    if (this.#view && isOver === this.#isOver && isSame(calls, this.#calls) && isSameView(view, this.#view)) return;
    this.#isOver = isOver;
    this.#turnId = turn.id;
    this.#view = view;
    this.#calls = calls;
    for (const [toolId, card] of this.#cardsById) {
      if (toolIds.includes(toolId)) continue;
      card.remove();
      this.#cardsById.delete(toolId);
    }
    this.#drawCards(view);
    this.tick(view);
    this.#fold();
  }

  /** Draw the cards. Those of a large collapsed block are created only when they are needed. @param {View} view */
  #drawCards(view) {
    const isFolded = this.#calls.length > FEW && this.#canFold && !this.#isShown();
    /** @type {ToolCallElement|null} */
    let previous = null;
    for (const call of this.#calls) {
      const existing = this.#cardsById.get(call.toolId);
      if (!existing && isFolded && isFine(call)) continue;
      const card = existing ?? new ToolCallElement();
      this.#cardsById.set(call.toolId, card);
      placeAfter(this.#cards, card, previous);
      if (card.call !== call || !isSameView(view, this.#drawnFor)) card.show(this.#turnId, call, view);
      previous = card;
    }
    this.#drawnFor = view;
  }

  get #canFold() {
    return this.#calls.length > 1 && this.#isOver && this.#calls.some(isFine);
  }

  /** Update the parts of the header that depend on time. @param {View} view */
  tick({ i18n, now, frozenAt }) {
    const n = this.#calls.length;
    const running = this.#calls.filter(isClocked).length;
    const isOver = this.#calls.every((call) => isCallOver(call.status));
    const times = this.#calls.map((call) => call.durationMs ?? (isClocked(call) ? elapsedOf(call, now, frozenAt) : 0));
    const longest = Math.max(0, ...times);
    const time = isOver ? i18n.duration(longest) : i18n.wholeClock(longest);
    const words = [
      i18n.count(this.#isOver ? "step_used" : "step_tools", n),
      running > 0 ? i18n.count("step_running", running) : "",
      longest > 0 ? time : "",
    ];
    setText(this.#words, words.filter(Boolean).join(" · "));
  }

  /** Return whether the block is expanded, so that all cards are shown. */
  #isShown() {
    return this.#isOpen ?? !this.#isOver;
  }

  #fold() {
    const isShown = this.#isShown();
    const canFold = this.#canFold;
    this.#head.hidden = this.#calls.length < 2;
    this.#head.disabled = !canFold;
    this.#head.setAttribute("aria-expanded", String(isShown || !canFold));
    for (const call of this.#calls) {
      const card = this.#cardsById.get(call.toolId);
      if (card) card.hidden = canFold && !isShown && isFine(call) && !this.#isLookedAt(card);
    }
  }

  /**
   * Return whether the person is reading a card, which then stays visible when the turn ends.
   * @param {ToolCallElement} card
   */
  #isLookedAt(card) {
    return this.#isOpen === null && (card.isOpen || card.contains(focusedBeside(card)));
  }
}

/** Return whether a call can be collapsed. Failed calls and background work stay visible. @param {Call} call */
const isFine = ({ status, work }) => status === "succeeded" && !work;

/** @param {ReadonlyArray<Call>} calls @param {ReadonlyArray<Call>} before */
const isSame = (calls, before) =>
  calls.length === before.length && calls.every((call, place) => call === before[place]);

/**
 * Return whether two views have the same viewer and the same state of the clocks.
 * @param {View} view
 * @param {View|null} before
 */
const isSameView = (view, before) => view.viewer === before?.viewer && view.frozenAt === before.frozenAt;

/** @param {Call} call */
const isClocked = (call) => call.status === "running" || call.status === "cancelling";

customElements.define("tool-step", ToolStepElement);
