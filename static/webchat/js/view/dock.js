/**
 * The parts around the composer: the bar of the running turn, queued messages, background work, and the context meter.
 */

import { isAsked } from "../state/calls.js";
import { askedCount } from "../state/overview.js";
import { activeTurn, isAtWork, queuedCount, queuedTurns } from "../state/reducer.js";
import { elapsedOf, isCallOver, isStopUnderWay } from "../state/status.js";
import { byId, element, focusedBeside, icon, placeAfter, setText } from "./dom.js";
import { stoppingLabel, workLabel } from "./labels.js";
import { linkTo } from "./sub_agents.js";

/** @typedef {import("./dom.js").Root} Root */
/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("./dom.js").View} View */
/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./i18n.js").I18n} I18n */
/** @typedef {import("../state/types.js").Work} Work */

/** Interruptions of the connection that are shorter than this are not shown. */
const LOST_MS = 1_000;
/** Replaces spaces, so that a narrow bar does not break a text like "21 s". */
const NO_BREAK = "\u00a0";

/** The bar of the active turn, with its activity and a cancel button that names everything that it cancels. */
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

  /**
   * @param {Root} root
   * @param {() => void} cancelLater the action of the menu
   * @param {() => void} leave moves the focus away from a button that disappears
   */
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
    // Safari does not focus a pressed button, so the menu would lose the focus and close before the click.
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
    const isAsking = askedCount(state) > 0;
    const focused = focusedBeside(this.#bar);
    this.#bar.hidden = !isAtWork(state);
    this.#bar.classList.toggle("is-asking", isAsking);
    this.#bar.classList.toggle("is-unknown", isLost(view));
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

  /** Show the background sub-agents, because no turn is active. @param {State} state @param {View} view */
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
    const remaining =
      isAsking || turn.retry === null || isLost({ now, frozenAt }) ? 0 : turn.retry.at - (frozenAt ?? now);
    const activity = isAsking ? "bar_asked" : turn.status === "queued" ? "bar_queued" : "bar_working";
    const key = isLost({ now, frozenAt }) ? "bar_unknown" : activity;
    const doing =
      remaining > 0
        ? i18n.text("bar_retrying", { left: i18n.wholeClock(Math.ceil(remaining / 1000) * 1000) })
        : i18n.text(key);
    const facts = [];
    const { stoppingAt } = turn;
    if (turn.endsAfterStep && stoppingAt === null) facts.push(i18n.text("bar_ends_after_step"));
    if (tools > 0 && key !== "bar_unknown") facts.push(i18n.count("bar_tools", tools));
    if (turn.status !== "queued" && remaining <= 0) facts.push(i18n.wholeClock(elapsedOf(turn, now, frozenAt)));
    setText(this.#barText, [doing, ...facts.map((fact) => fact.replaceAll(" ", NO_BREAK))].join(`${NO_BREAK}· `));
    this.#bar.classList.toggle("is-stopping", stoppingAt !== null);
    this.#cancel.disabled = isStopUnderWay(turn, { now, frozenAt });
    if (this.#cancel.disabled && stoppingAt !== null)
      setText(this.#cancelLabel, stoppingLabel(i18n, stoppingAt, { now, frozenAt }));
    else if (stoppingAt !== null) setText(this.#cancelLabel, i18n.text("cancel_again"));
  }
}

/** @param {Pick<View, "now"|"frozenAt">} at */
const isLost = ({ now, frozenAt }) => frozenAt !== null && now - frozenAt > LOST_MS;

/**
 * Return a label such as "Cancel task", "Cancel task and 2 queued" or "Cancel task and 1 agent".
 * @param {import("./i18n.js").I18n} i18n
 * @param {string} key
 * @param {number} queued
 * @param {number} agents
 */
function cancelLabel(i18n, key, queued, agents) {
  const label = queued > 0 ? i18n.count(`${key}_queued`, queued) : i18n.text(key);
  return agents > 0 ? i18n.count("cancel_with_agents", agents, { label }) : label;
}

/**
 * A list of rows, whose section is hidden if there are none. Rows keep their elements. If the focused button disappears
 * or is disabled, the focus is moved out of the list.
 * @template Item
 * @template {Readonly<{row: HTMLElement}>} Row
 */
class RowList {
  #section;
  #list;
  #leave;
  /** @type {Map<string, Row>} */
  #rows = new Map();

  /**
   * @param {Root} root
   * @param {string} id the id of the section; the id of the list has `-list` appended
   * @param {() => void} leave
   */
  constructor(root, id, leave) {
    this.#section = byId(root, id, HTMLElement);
    this.#list = byId(root, `${id}-list`, HTMLElement);
    this.#leave = leave;
  }

  /**
   * @param {ReadonlyMap<string, Item>} items the items by key
   * @param {(item: Item) => Row} create
   * @param {(row: Row, item: Item) => void} show
   */
  render(items, create, show) {
    const focused = focusedBeside(this.#list);
    const hadFocus = this.#list.contains(focused);
    this.#section.hidden = items.size === 0;
    for (const [key, { row }] of this.#rows) {
      if (items.has(key)) continue;
      row.remove();
      this.#rows.delete(key);
    }
    /** @type {HTMLElement|null} */
    let previous = null;
    for (const [key, item] of items) {
      const row = this.#rows.get(key) ?? create(item);
      this.#rows.set(key, row);
      show(row, item);
      placeAfter(this.#list, row.row, previous);
      previous = row.row;
    }
    const isLost =
      !this.#list.contains(focusedBeside(this.#list)) || (focused instanceof HTMLButtonElement && focused.disabled);
    if (hadFocus && isLost) this.#leave();
  }
}

/** The queued messages as chips, each of which can be edited and removed. */
export class QueueChips {
  /** @type {RowList<Turn, {row: HTMLElement}>} */
  #chips;
  #actions;

  /** @param {Root} root @param {Readonly<{remove: (turnId: string) => void, edit: (turnId: string, text: string) => void, leave: () => void}>} actions */
  constructor(root, actions) {
    this.#chips = new RowList(root, "queue", actions.leave);
    this.#actions = actions;
  }

  /** @param {State} state @param {{i18n: I18n}} view */
  render(state, { i18n }) {
    this.#chips.render(
      new Map(queuedTurns(state).map((turn) => [turn.id, turn])),
      (turn) => ({ row: this.#newChip(turn, i18n) }),
      ({ row }, { stoppingAt }) => {
        for (const button of row.querySelectorAll("button")) button.disabled = stoppingAt !== null;
      },
    );
  }

  /** @param {Turn} turn @param {I18n} i18n */
  #newChip({ id, items }, i18n) {
    const message = items.find((item) => item.kind === "user");
    const text = message?.kind === "user" ? message.text : "";
    const files = message?.kind === "user" ? message.attachments.map(({ name }) => name) : [];
    const label = [text, ...files].filter(Boolean).join(" · ");
    const button = (/** @type {string} */ name, /** @type {string} */ key) =>
      element(
        "button",
        { class: "button-icon", type: "button", "aria-label": i18n.text(key, { text: label }) },
        icon(name),
      );
    const [edit, remove] = [button("pencil", "queue_edit"), button("cross", "queue_remove")];
    edit.addEventListener("click", () => this.#actions.edit(id, text));
    remove.addEventListener("click", () => this.#actions.remove(id));
    const words = element("span", { class: "queue-text", title: label, text: label });
    return element("li", { class: "queue-chip" }, words, edit, remove);
  }
}

/** @typedef {Readonly<{row: HTMLElement, doing: HTMLElement, time: HTMLElement, link: HTMLAnchorElement, stop: HTMLButtonElement}>} WorkRow */

/** The list of sub-agents in the background, with their activity, running time, and the controls *Open* and *Stop*. */
export class BackgroundList {
  /** @type {RowList<Work, WorkRow>} */
  #rows;
  #stop;

  /** @param {Root} root @param {Readonly<{stop: (turnId: string) => void, leave: () => void}>} actions */
  constructor(root, { stop, leave }) {
    this.#rows = new RowList(root, "background", leave);
    this.#stop = stop;
  }

  /** @param {State} state @param {View} view */
  render({ background }, view) {
    this.#rows.render(
      new Map(background.map((work) => [work.turnId, work])),
      (work) => this.#newRow(work, view),
      ({ doing, time, link, stop }, work) => {
        setText(doing, workLabel(view.i18n, work, view));
        setText(time, view.i18n.wholeClock(elapsedOf(work, view.now, view.frozenAt)));
        linkTo(link, work, view);
        stop.disabled = isStopUnderWay(work, view);
      },
    );
  }

  /** @param {Work} work @param {View} view @returns {WorkRow} */
  #newRow({ turnId, agent }, { i18n }) {
    const doing = element("span", { class: "background-doing" });
    const time = element("span", { class: "background-time", role: "timer", "aria-live": "off" });
    const link = element("a", { class: "background-open" });
    const stop = element("button", { class: "button background-stop", type: "button", text: i18n.text("stop_work") });
    stop.setAttribute("aria-label", i18n.text("stop_agent", { agent }));
    stop.addEventListener("click", () => this.#stop(turnId));
    const dot = element("span", { class: "dot dot-running" });
    const row = element("li", { class: "background-row" }, dot, doing, time, link, stop);
    return { row, doing, time, link, stop };
  }
}

/** A smaller share of the context window is not worth a person's attention. */
const SHOWN_FROM = 0.6;

/** Shows how much of the model's context window the conversation uses. */
export class ContextMeter {
  #line;
  #meter;
  #text;

  /** @param {import("./dom.js").Root} root */
  constructor(root) {
    this.#line = byId(root, "context", HTMLElement);
    this.#meter = byId(root, "context-meter", HTMLMeterElement);
    this.#text = byId(root, "context-text", HTMLElement);
  }

  /** @param {import("../state/types.js").State} state @param {import("./dom.js").View} view */
  render({ turns }, { i18n }) {
    const fullness = turns.findLast((turn) => turn.fullness > 0 && !turn.replacedBy)?.fullness ?? 0;
    this.#line.hidden = fullness < SHOWN_FROM;
    if (this.#line.hidden) return;
    const percent = Math.floor(fullness * 100);
    this.#meter.value = percent;
    setText(this.#text, i18n.text("context_used", { percent }));
  }
}
