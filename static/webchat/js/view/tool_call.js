/**
 * Defines `<tool-call>`, which shows a call in one line with its running time, limit and Cancel button (V2), and
 * details when it is opened.
 */

import { resultAddress } from "../net/api.js";
import { isAsked } from "../state/calls.js";
import { canBeCancelled, canOnlyBeLeft, elapsedOf, isCallOver, isStopUnderWay, tierOf } from "../state/status.js";
import { CallDetails } from "./call_details.js";
import { element, focusedBeside, icon, setText } from "./dom.js";
import {
  activityLabel,
  clockLabel,
  limitFact,
  noteLabel,
  outcomeLabel,
  shortInput,
  toolLabel,
  workLabel,
} from "./labels.js";
import { linkTo } from "./sub_agents.js";

/** @typedef {import("../state/types.js").Call} Call */
/** @typedef {import("./dom.js").View} View */

/** The delay before the clock appears, so that it does not flicker for short calls. */
const SHOW_CLOCK_AFTER_MS = 500;
const EXTEND_MS = 30_000;
/** @type {Record<string, string>} */
const ICON_OF = {
  succeeded: "check",
  failed: "cross",
  timed_out: "clock",
  cancelled: "square",
  abandoned: "warning",
  denied: "cross",
  expired: "clock",
  not_started: "pause",
  awaiting_approval: "question",
  repaired: "link",
  closed: "link",
};
let count = 0;

/**
 * The card of a call. It fires `tool-call-cancel`, `tool-call-extend`, `tool-call-stop-work` and `tool-call-result`,
 * all with `turnId` and `toolId` in `detail`.
 */
export class ToolCallElement extends HTMLElement {
  /** @type {Call|null} */
  #call = null;
  #turnId = "";
  /** @type {View|null} */
  #view = null;
  #built = false;
  #row = element("div", { class: "call-row" });
  #toggle = element("button", { class: "call-toggle", type: "button", "aria-expanded": "false" });
  #mark = element("span", { class: "call-mark" });
  #name = element("span", { class: "call-name" });
  #input = element("span", { class: "call-input" });
  #note = element("span", { class: "call-note" });
  #side = element("span", { class: "call-side" });
  #state = element("span", { class: "call-state" });
  #time = element("span", { class: "call-time", role: "timer", "aria-live": "off" });
  #child = element("a", { class: "call-child", hidden: "" });
  #extend = element("button", { class: "button call-extend", type: "button" });
  #cancel = element("button", { class: "button call-cancel", type: "button" });
  #bar = element("span", { class: "call-bar", "aria-hidden": "true" });
  /** Created when the card is opened. @type {CallDetails|null} */
  #details = null;
  #bodyId = "";
  #events = new AbortController();

  /** @returns {Call|null} */
  get call() {
    return this.#call;
  }

  /** Whether the card is open. @returns {boolean} */
  get isOpen() {
    return this.#details?.isOpen === true;
  }

  /** @returns {string} */
  get turnId() {
    return this.#turnId;
  }

  connectedCallback() {
    this.#events.abort();
    this.#events = new AbortController();
    const { signal } = this.#events;
    this.#toggle.addEventListener("click", () => this.#setOpen(!this.isOpen), { signal });
    this.#cancel.addEventListener("click", () => this.cancel(), { signal });
    this.#extend.addEventListener("click", () => this.#fire("tool-call-extend", { extendMs: EXTEND_MS }), { signal });
  }

  disconnectedCallback() {
    this.#events.abort();
  }

  /** Request a cancel of the call or of its background work, if that is possible now. */
  cancel() {
    const call = this.#call;
    if (call?.work) return this.#fire("tool-call-stop-work", { turnId: call.work.turnId });
    if (!call || !canBeCancelled(call) || isStopUnderWay(call, { now: performance.now(), frozenAt: null })) return;
    this.#fire("tool-call-cancel", {});
  }

  /** @param {string} turnId @param {Call} call @param {View} view */
  show(turnId, call, view) {
    if (!this.#built) this.#build(view);
    const before = this.#call;
    this.#turnId = turnId;
    this.#call = call;
    setText(this.#name, toolLabel(call));
    setText(this.#input, shortInput(call.arguments));
    this.dataset.status = shownStatus(call);
    if (!before || shownStatus(before) !== shownStatus(call)) this.#drawMark(call);
    linkTo(this.#child, call.subAgent, view);
    this.#showControls(call, view);
    if (this.isOpen) this.#details?.show(call, view);
    this.#view = view;
    this.tick(view);
  }

  /** Update the parts that depend on time. @param {View} view */
  tick(view) {
    const call = this.#call;
    if (!call) return;
    if (call.work) return this.#showWork(call, call.work, view);
    const isOver = isCallOver(call.status);
    const elapsed = elapsedOf(call, view.now, view.frozenAt);
    const isClocked = call.status === "running" || call.status === "cancelling";
    this.dataset.tier = isClocked ? tierOf(elapsed, call.expectedMs) : "";
    this.#showShare(isClocked ? elapsed : 0, call.timeoutMs);
    if (call.stoppingAt !== null) this.#cancel.disabled = isStopUnderWay(call, view);
    const state = isOver ? outcomeLabel(view.i18n, call, view.viewer) : activityLabel(view.i18n, call, elapsed, view);
    setText(this.#state, state);
    this.#showClock(call, elapsed, view);
    const spoken = call.status === "succeeded" ? view.i18n.text("call_succeeded", { after: state }) : state;
    this.#label(view.i18n.text("card_label", { tool: toolLabel(call), state: spoken }));
  }

  /**
   * Show the background work of the call, which continues after the call has ended.
   * @param {Call} call
   * @param {import("../state/types.js").Work} work
   * @param {View} view
   */
  #showWork(call, work, view) {
    this.dataset.tier = "";
    this.#showShare(0, null);
    this.#cancel.disabled = isStopUnderWay(work, view);
    const state = workLabel(view.i18n, work, view);
    setText(this.#state, state);
    this.#time.hidden = false;
    setText(this.#time, view.i18n.wholeClock(elapsedOf(work, view.now, view.frozenAt)));
    this.#label(view.i18n.text("card_label", { tool: toolLabel(call), state }));
  }

  /** @param {string} label */
  #label(label) {
    if (this.getAttribute("aria-label") !== label) this.setAttribute("aria-label", label);
  }

  /** @param {View} view */
  #build(view) {
    this.#built = true;
    count += 1;
    this.#bodyId = `call-body-${count}`;
    this.classList.add("call");
    this.setAttribute("role", "group");
    this.tabIndex = -1;
    this.#toggle.append(this.#mark, this.#name, this.#input, this.#note, icon("chevron"));
    this.#side.append(this.#state, this.#time);
    setText(this.#extend, view.i18n.text("extend", { seconds: EXTEND_MS / 1000 }));
    this.#row.append(this.#toggle, this.#side, this.#child, this.#extend, this.#cancel);
    this.append(this.#row, this.#bar);
  }

  /** @param {Call} call @param {View} view */
  #showControls(call, { i18n, viewer, now, frozenAt }) {
    const focused = focusedBeside(this);
    const isStopping = call.stoppingAt !== null;
    const tool = toolLabel(call);
    // The question already has a Deny button, so the card needs no Cancel button. The keyboard shortcut still cancels
    // the call.
    this.#cancel.hidden = !call.work && (!canBeCancelled(call) || isAsked(call));
    this.#cancel.disabled = isStopUnderWay(call.work ?? call, { now, frozenAt });
    const [text, label] = cancelTexts(call);
    setText(this.#cancel, i18n.text(text));
    this.#cancel.setAttribute("aria-label", i18n.text(label, { tool, agent: call.work?.agent ?? "" }));
    const isRunning = call.status === "running";
    this.#extend.hidden = !isRunning || !call.timeoutMs || isStopping || frozenAt !== null;
    this.#extend.setAttribute("aria-label", i18n.text("extend_tool", { tool, seconds: EXTEND_MS / 1000 }));
    setText(this.#note, noteLabel(i18n, call, viewer));
    this.#time.title = isRunning ? limitFact(i18n, call) : "";
    const isLost = focused === this.#cancel && (this.#cancel.hidden || this.#cancel.disabled);
    if (isLost || (focused === this.#extend && this.#extend.hidden)) this.focus();
  }

  /**
   * Show the elapsed share of the limit as a bar, unless there is no limit.
   * @param {number} elapsed
   * @param {number|null} timeoutMs
   */
  #showShare(elapsed, timeoutMs) {
    this.#bar.hidden = elapsed === 0 || !timeoutMs;
    if (this.#bar.hidden || !timeoutMs) return;
    this.#bar.style.setProperty("--share", String(Math.min(1, elapsed / timeoutMs)));
  }

  /** @param {Call} call @param {number} elapsed @param {View} view */
  #showClock(call, elapsed, { i18n, now, frozenAt }) {
    const isShown = (call.status === "running" || call.status === "cancelling") && elapsed >= SHOW_CLOCK_AFTER_MS;
    this.#time.hidden = !isShown;
    this.classList.toggle("is-frozen", isShown && frozenAt !== null);
    if (!isShown) return;
    const clock = clockLabel(i18n, elapsed, call.timeoutMs);
    const ago = frozenAt === null ? "" : i18n.text("last_seen", { ago: i18n.clock(now - frozenAt) });
    setText(this.#time, ago ? `${clock} · ${ago}` : clock);
  }

  /** @param {Call} call */
  #drawMark(call) {
    const name = call.work ? undefined : ICON_OF[call.status];
    if (name) this.#mark.replaceChildren(icon(name));
    else this.#mark.replaceChildren(element("span", { class: "call-dot" }));
  }

  /** @param {View} view */
  #newDetails(view) {
    const address = resultAddress(view.resultUrl ?? "", this.#turnId, this.#call?.toolId ?? "");
    const details = new CallDetails((tell) => this.#fire("tool-call-result", { tell }), address);
    details.build(view);
    details.element.id = this.#bodyId;
    this.#toggle.setAttribute("aria-controls", this.#bodyId);
    this.append(details.element);
    return details;
  }

  /** @param {boolean} isOpen */
  #setOpen(isOpen) {
    if (!this.#call || !this.#view) return;
    this.#details ??= this.#newDetails(this.#view);
    if (isOpen) this.#details.show(this.#call, this.#view);
    this.#details.element.hidden = !isOpen;
    this.#toggle.setAttribute("aria-expanded", String(isOpen));
  }

  /** @param {string} type @param {Record<string, unknown>} detail */
  #fire(type, detail) {
    const where = { turnId: this.#turnId, toolId: this.#call?.toolId ?? "" };
    this.dispatchEvent(new CustomEvent(type, { bubbles: true, detail: { ...where, ...detail } }));
  }
}

/**
 * Return the status that the card shows. It stays active while background work of the call continues.
 * @param {Call} call
 */
function shownStatus({ status, stoppingAt, work }) {
  if ((work ?? { stoppingAt }).stoppingAt !== null) return "cancelling";
  return work ? "running" : status;
}

/**
 * Return the keys of the text and the accessible name of the cancel button.
 * @param {Call} call
 * @returns {[string, string]}
 */
function cancelTexts(call) {
  if (call.work) return ["stop_work", "stop_agent"];
  return canOnlyBeLeft(call) ? ["stop_waiting", "stop_waiting_for"] : ["cancel", "cancel_tool"];
}

customElements.define("tool-call", ToolCallElement);
