/** `<tool-step>`: the calls of one step in one block, with a head; after its turn what went well is folded away. */

import { elapsedOf, isCallOver, isTurnOver } from "../state/status.js";
import { element, focusedBeside, icon, placeAfter, setText } from "./dom.js";
import { ToolCallElement } from "./tool_call.js";

/** @typedef {import("../state/types.js").Call} Call */
/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./tool_call.js").View} View */

/** So many cards that nobody sees cost nothing. */
const FEW = 8;

let made = 0;

export class ToolStepElement extends HTMLElement {
  #head = element("button", { class: "step-head", type: "button" });
  #words = element("span", { class: "step-words" });
  #cards = element("div", { class: "step-cards" });
  /** @type {Map<string, ToolCallElement>} */
  #known = new Map();
  /** @type {ReadonlyArray<Call>} */
  #calls = [];
  #isOver = false;
  #turnId = "";
  /** @type {View|null} */
  #view = null;
  /** For whom the cards were drawn. @type {View|null} */
  #drawnFor = null;
  /** What the person has chosen, before which the block decides for itself. @type {boolean|null} */
  #isOpen = null;

  connectedCallback() {
    if (this.#head.isConnected) return;
    made += 1;
    this.#cards.id = `step-cards-${made}`;
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
    for (const [toolId, card] of this.#known) {
      if (toolIds.includes(toolId)) continue;
      card.remove();
      this.#known.delete(toolId);
    }
    this.#drawCards(view);
    this.tick(view);
    this.#fold();
  }

  /** The cards; of many that are folded away each is made when somebody looks for it. @param {View} view */
  #drawCards(view) {
    const isFolded = this.#calls.length > FEW && this.#canFold && !this.#isShown();
    /** @type {ToolCallElement|null} */
    let previous = null;
    for (const call of this.#calls) {
      const known = this.#known.get(call.toolId);
      if (!known && isFolded && isFine(call)) continue;
      const card = known ?? new ToolCallElement();
      this.#known.set(call.toolId, card);
      placeAfter(this.#cards, card, previous);
      if (card.call !== call || !isSameView(view, this.#drawnFor)) card.show(this.#turnId, call, view);
      previous = card;
    }
    this.#drawnFor = view;
  }

  get #canFold() {
    return this.#calls.length > 1 && this.#isOver && this.#calls.some(isFine);
  }

  /** Repaint what time changes in the head. @param {View} view */
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

  /** Whether every card is shown. */
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
      const card = this.#known.get(call.toolId);
      if (card) card.hidden = canFold && !isShown && isFine(call) && !this.#isLookedAt(card);
    }
  }

  /** What somebody looks into when the turn ends stays. @param {ToolCallElement} card */
  #isLookedAt(card) {
    return this.#isOpen === null && (card.isOpen || card.contains(focusedBeside(card)));
  }
}

/** What went well is folded away; what did not, and what goes on in the background, stays in sight. @param {Call} call */
const isFine = ({ status, work }) => status === "succeeded" && !work;

/** @param {ReadonlyArray<Call>} calls @param {ReadonlyArray<Call>} before */
const isSame = (calls, before) =>
  calls.length === before.length && calls.every((call, place) => call === before[place]);

/** Whether the same person looks, with the clocks running or frozen as before. @param {View} view @param {View|null} before */
const isSameView = (view, before) => view.viewer === before?.viewer && view.frozenAt === before.frozenAt;

/** @param {Call} call */
const isClocked = (call) => call.status === "running" || call.status === "cancelling";

customElements.define("tool-step", ToolStepElement);
