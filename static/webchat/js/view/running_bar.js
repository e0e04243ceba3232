/** The bar above the composer: the turn at work, and the one place that ends it, which names what it ends. */

import { isAsked } from "../state/approval.js";
import { openQuestions } from "../state/overview.js";
import { activeTurn, isAtWork, queuedCount } from "../state/reducer.js";
import { elapsedOf, isCallOver, isStopUnderWay } from "../state/status.js";
import { byId, focusedBeside, setText } from "./dom.js";
import { stoppingLabel } from "./labels.js";

/** @typedef {import("./dom.js").Root} Root */
/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("./tool_call.js").View} View */

/** "21 s" is not torn apart where the bar is narrow. */
const NO_BREAK = "\u00a0";

export class RunningBar {
  #bar;
  #barText;
  #queued;
  #cancel;
  #cancelLabel;
  #more;
  #menu;
  #later;
  #leave;

  /** @param {Root} root @param {() => void} cancelLater what the menu offers @param {() => void} leave where the focus goes when its button is gone */
  constructor(root, cancelLater, leave) {
    this.#bar = byId(root, "running-bar", HTMLElement);
    this.#barText = byId(root, "running-text", HTMLElement);
    this.#queued = byId(root, "running-queued", HTMLElement);
    this.#cancel = byId(root, "cancel-turn", HTMLButtonElement);
    this.#cancelLabel = byId(root, "cancel-turn-label", HTMLElement);
    this.#more = byId(root, "cancel-more", HTMLButtonElement);
    this.#menu = byId(root, "cancel-menu", HTMLElement);
    this.#later = byId(root, "cancel-later", HTMLButtonElement);
    this.#leave = leave;
    this.#more.addEventListener("click", () => this.#open(this.#menu.hidden === true));
    this.#later.addEventListener("click", () => {
      this.#open(false);
      cancelLater();
    });
    this.#bar.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || this.#menu.hidden) return;
      event.preventDefault();
      this.#open(false);
    });
    // Safari gives no focus to a button that is pressed: the menu would lose it, and close before the click.
    for (const part of [this.#more, this.#menu]) part.addEventListener("mousedown", (event) => event.preventDefault());
    this.#bar.addEventListener("focusout", (event) => {
      if (!this.#bar.contains(/** @type {Node|null} */ (event.relatedTarget))) this.#close();
    });
  }

  /** @param {boolean} isOpen */
  #open(isOpen) {
    this.#menu.hidden = !isOpen;
    this.#more.setAttribute("aria-expanded", String(isOpen));
    (isOpen ? this.#later : this.#more).focus();
  }

  #close() {
    this.#menu.hidden = true;
    this.#more.setAttribute("aria-expanded", "false");
  }

  /** @param {State} state @param {View} view */
  render(state, view) {
    const turn = activeTurn(state);
    const isAsking = openQuestions(state).length > 0;
    const focused = focusedBeside(this.#bar);
    this.#bar.hidden = !isAtWork(state);
    this.#bar.classList.toggle("is-asking", isAsking);
    const queued = queuedCount(state);
    setText(this.#queued, queued > 0 ? view.i18n.count("bar_queue", queued) : "");
    if (turn) this.#renderTurn(turn, isAsking, view);
    else this.#renderBackground(state, view);
    const agents = state.background.filter(({ parentTurnId }) => parentTurnId === turn?.id).length;
    if (turn?.stoppingAt === null) setText(this.#cancelLabel, cancelLabel(view.i18n, "cancel_turn", queued, agents));
    setText(this.#later, cancelLabel(view.i18n, "cancel_later", queued, 0));
    this.#more.hidden = turn === null || turn.stoppingAt !== null || turn.endsAfterStep || turn.status === "queued";
    if (this.#more.hidden && !this.#menu.hidden) this.#close();
    if (this.#bar.contains(focused) && focused instanceof HTMLElement && focused.closest("[hidden]")) this.#leave();
    if (focused === this.#cancel && (this.#bar.hidden || this.#cancel.disabled)) this.#leave();
  }

  /** Nothing is at work here but sub-agents that nothing waits for. @param {State} state @param {View} view */
  #renderBackground({ background }, { i18n, now, frozenAt }) {
    const [first] = background;
    if (!first) return;
    setText(this.#barText, i18n.count("bar_background", background.length));
    const isStopping = background.every((work) => isStopUnderWay(work, { now, frozenAt }));
    this.#bar.classList.toggle("is-stopping", isStopping);
    this.#cancel.disabled = isStopping;
    const { agent, stoppingAt } = first;
    const one = i18n.text("stop_agent", { agent });
    const label = background.length === 1 ? one : i18n.count("stop_agents", background.length);
    const isSaid = isStopping && stoppingAt !== null;
    setText(this.#cancelLabel, isSaid ? stoppingLabel(i18n, stoppingAt, { now, frozenAt }) : label);
  }

  /** @param {import("../state/types.js").Turn} turn @param {boolean} isAsking @param {View} view */
  #renderTurn(turn, isAsking, { i18n, now, frozenAt }) {
    const tools = Object.values(turn.calls).filter((call) => !isCallOver(call.status) && !isAsked(call)).length;
    const left = isAsking || turn.retry === null ? 0 : turn.retry.at - (frozenAt ?? now);
    const key = isAsking ? "bar_asked" : turn.status === "queued" ? "bar_queued" : "bar_working";
    const doing =
      left > 0 ? i18n.text("bar_retrying", { left: i18n.wholeClock(Math.ceil(left / 1000) * 1000) }) : i18n.text(key);
    const facts = [];
    const { stoppingAt } = turn;
    if (turn.endsAfterStep && stoppingAt === null) facts.push(i18n.text("bar_ends_after_step"));
    if (tools > 0) facts.push(i18n.count("bar_tools", tools));
    if (turn.status !== "queued" && left <= 0) facts.push(i18n.wholeClock(elapsedOf(turn, now, frozenAt)));
    setText(this.#barText, [doing, ...facts.map((fact) => fact.replaceAll(" ", NO_BREAK))].join(`${NO_BREAK}· `));
    this.#bar.classList.toggle("is-stopping", stoppingAt !== null);
    this.#cancel.disabled = isStopUnderWay(turn, { now, frozenAt });
    if (this.#cancel.disabled && stoppingAt !== null)
      setText(this.#cancelLabel, stoppingLabel(i18n, stoppingAt, { now, frozenAt }));
    else if (stoppingAt !== null) setText(this.#cancelLabel, i18n.text("cancel_again"));
  }
}

/** "Cancel turn", "Cancel turn and 2 queued", "Cancel turn and 1 agent". @param {import("./i18n.js").I18n} i18n @param {string} key @param {number} queued @param {number} agents */
function cancelLabel(i18n, key, queued, agents) {
  const label = queued > 0 ? i18n.count(`${key}_queued`, queued) : i18n.text(key);
  return agents > 0 ? i18n.count("cancel_with_agents", agents, { label }) : label;
}
