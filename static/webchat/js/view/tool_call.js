/** `<tool-call>`: the card of one tool call, with its clock, its limit, its progress and its Cancel button (V2). */

import { isAsked } from "../state/approval.js";
import { visible } from "../state/hidden_characters.js";
import { canBeCancelled, canOnlyBeLeft, elapsedOf, isCallOver, isStopUnderWay, tierOf } from "../state/status.js";
import { ApprovalForm } from "./approval_form.js";
import { element, icon, setText } from "./dom.js";
import {
  activityLabel,
  clockLabel,
  lateLabel,
  limitChangeLabel,
  limitLabel,
  outcomeLabel,
  shortInput,
  verdictLabel,
} from "./labels.js";
import { linkTo } from "./sub_agents.js";

/** @typedef {import("../state/types.js").Call} Call */
/** @typedef {Readonly<{i18n: import("./i18n.js").I18n, viewer: string, now: number, frozenAt: number|null}>} View */

/** A clock that appears and goes at once is only a flicker. */
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
let made = 0;

/** Fires `tool-call-cancel`, `tool-call-extend` and `tool-call-decide`, all with `{turnId, toolId}` in `detail`. */
export class ToolCallElement extends HTMLElement {
  /** @type {Call|null} */
  #call = null;
  #turnId = "";
  #built = false;
  #row = element("div", { class: "call-row" });
  #toggle = element("button", { class: "call-toggle", type: "button", "aria-expanded": "false" });
  #mark = element("span", { class: "call-mark" });
  #name = element("span", { class: "call-name" });
  #input = element("span", { class: "call-input" });
  #state = element("span", { class: "call-state" });
  #time = element("span", { class: "call-time", role: "timer", "aria-live": "off" });
  #cancel = element("button", { class: "button call-cancel", type: "button" });
  #progress = element("progress", { class: "call-progress" });
  #message = element("span", { class: "call-message" });
  #limit = element("span", { class: "call-limit" });
  #change = element("span", { class: "call-change" });
  #child = element("a", { class: "call-child", hidden: "" });
  #extend = element("button", { class: "button-quiet call-extend", type: "button" });
  #verdict = element("span", { class: "call-verdict" });
  #approval = new ApprovalForm((decision) => this.#fire("tool-call-decide", decision));
  #foot = element("div", { class: "call-foot" });
  #body = element("div", { class: "call-body", hidden: "" });
  #events = new AbortController();

  /** @returns {Call|null} */
  get call() {
    return this.#call;
  }

  /** @returns {string} */
  get turnId() {
    return this.#turnId;
  }

  connectedCallback() {
    this.#events.abort();
    this.#events = new AbortController();
    const { signal } = this.#events;
    this.#toggle.addEventListener("click", () => this.#setOpen(this.#body.hidden === true), { signal });
    this.#cancel.addEventListener("click", () => this.cancel(), { signal });
    this.#approval.listen(signal);
    this.#extend.addEventListener("click", () => this.#fire("tool-call-extend", { extendMs: EXTEND_MS }), { signal });
  }

  disconnectedCallback() {
    this.#events.abort();
  }

  /** Ask for the call's end, if it can be asked now. */
  cancel() {
    const call = this.#call;
    if (!call || !canBeCancelled(call) || isStopUnderWay(call, { now: performance.now(), frozenAt: null })) return;
    this.#fire("tool-call-cancel", {});
  }

  /** @param {string} turnId @param {Call} call @param {View} view */
  show(turnId, call, view) {
    if (!this.#built) this.#build(view);
    const before = this.#call;
    this.#turnId = turnId;
    this.#call = call;
    setText(this.#name, call.name);
    setText(this.#input, shortInput(call.input));
    this.dataset.status = call.stoppingAt !== null ? "cancelling" : call.status;
    if (before?.status !== call.status) this.#drawMark(call);
    linkTo(this.#child, call.subAgent, view.i18n);
    const hadFocus = this.#approval.element.contains(document.activeElement);
    this.#approval.show(call, view);
    this.#showControls(call, view);
    if (hadFocus && (this.#approval.element.hidden || call.isDeciding)) this.focus();
    if (before?.input !== call.input || before?.result !== call.result) this.#fillBody(view);
    this.tick(view);
  }

  /** Repaint what time changes. @param {View} view */
  tick(view) {
    const call = this.#call;
    if (!call) return;
    const isOver = isCallOver(call.status);
    const elapsed = elapsedOf(call, view.now, view.frozenAt);
    const isClocked = call.status === "running" || call.status === "cancelling";
    this.dataset.tier = isClocked ? tierOf(elapsed, call.expectedMs) : "";
    if (isAsked(call)) this.#approval.tick(call, view);
    if (call.stoppingAt !== null) this.#cancel.disabled = isStopUnderWay(call, view);
    const state = isOver ? outcomeLabel(view.i18n, call, view.viewer) : activityLabel(view.i18n, call, elapsed, view);
    setText(this.#state, state);
    this.#showClock(call, elapsed, view);
    const spoken = call.status === "succeeded" ? view.i18n.text("call_succeeded", { after: state }) : state;
    const label = view.i18n.text("card_label", { tool: call.name, state: spoken });
    if (this.getAttribute("aria-label") !== label) this.setAttribute("aria-label", label);
  }

  /** @param {View} view */
  #build({ i18n, viewer, now, frozenAt }) {
    this.#built = true;
    made += 1;
    this.#body.id = `call-body-${made}`;
    this.#toggle.setAttribute("aria-controls", this.#body.id);
    this.classList.add("call");
    this.setAttribute("role", "group");
    this.tabIndex = -1;
    this.#toggle.append(this.#mark, this.#name, this.#input, icon("chevron"));
    this.#row.append(this.#toggle, this.#child, this.#time, this.#state, this.#cancel);
    setText(this.#extend, i18n.text("extend", { seconds: EXTEND_MS / 1000 }));
    this.#foot.append(this.#verdict, this.#message, this.#limit, this.#change, this.#extend);
    this.#approval.build({ i18n, viewer, now, frozenAt });
    this.append(this.#row, this.#progress, this.#approval.element, this.#foot, this.#body);
  }

  /** @param {Call} call @param {View} view */
  #showControls(call, { i18n, viewer, now, frozenAt }) {
    const isOpen = !isCallOver(call.status);
    const focused = document.activeElement;
    const isStopping = call.stoppingAt !== null;
    // Who is asked says no with a button of its own; two of them would be one too many. The key still cancels.
    this.#cancel.hidden = !canBeCancelled(call) || isAsked(call);
    this.#cancel.disabled = isStopUnderWay(call, { now, frozenAt });
    const isLeft = canOnlyBeLeft(call);
    setText(this.#cancel, i18n.text(isLeft ? "stop_waiting" : "cancel"));
    this.#cancel.setAttribute(
      "aria-label",
      i18n.text(isLeft ? "stop_waiting_for" : "cancel_tool", { tool: call.name }),
    );
    const isRunning = call.status === "running";
    this.#extend.hidden = !isRunning || !call.timeoutMs || isStopping || frozenAt !== null;
    this.#extend.setAttribute("aria-label", i18n.text("extend_tool", { tool: call.name, seconds: EXTEND_MS / 1000 }));
    const isLate = call.late !== null;
    const verdict = verdictLabel(i18n, call, viewer);
    setText(this.#verdict, verdict);
    this.#foot.hidden = !(isRunning || isLate || verdict);
    setText(this.#limit, isLate ? lateLabel(i18n, call) : isRunning ? limitLabel(i18n, call) : "");
    setText(this.#change, isRunning ? limitChangeLabel(i18n, call) : "");
    setText(this.#message, isRunning ? call.message : "");
    this.#showProgress(call, isOpen);
    const isLost = focused === this.#cancel && (this.#cancel.hidden || this.#cancel.disabled);
    if (isLost || (focused === this.#extend && (this.#extend.hidden || this.#foot.hidden))) this.focus();
  }

  /** @param {Call} call @param {boolean} isOpen */
  #showProgress(call, isOpen) {
    const hasProgress = call.progress !== null && call.total !== null && call.total > 0;
    this.#progress.hidden = !hasProgress || !isOpen;
    if (hasProgress) {
      this.#progress.max = call.total ?? 1;
      this.#progress.value = Math.min(call.progress ?? 0, call.total ?? 1);
      this.#progress.setAttribute("aria-label", call.name);
    }
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
    const name = ICON_OF[call.status];
    if (name) this.#mark.replaceChildren(icon(name));
    else this.#mark.replaceChildren(element("span", { class: "call-dot" }));
  }

  /** @param {View} view */
  #fillBody({ i18n }) {
    const call = this.#call;
    if (!call) return;
    const parts = [section(i18n.text("arguments"), visible(JSON.stringify(call.input, null, 2)))];
    if (call.result !== null) parts.push(section(i18n.text("result"), call.result || i18n.text("result_empty")));
    this.#body.replaceChildren(...parts);
  }

  /** @param {boolean} isOpen */
  #setOpen(isOpen) {
    this.#body.hidden = !isOpen;
    this.#toggle.setAttribute("aria-expanded", String(isOpen));
  }

  /** @param {string} type @param {Record<string, unknown>} detail */
  #fire(type, detail) {
    const where = { turnId: this.#turnId, toolId: this.#call?.toolId ?? "" };
    this.dispatchEvent(new CustomEvent(type, { bubbles: true, detail: { ...where, ...detail } }));
  }
}

/** @param {string} title @param {string} text */
function section(title, text) {
  const pre = element("pre", { class: "call-text", tabindex: "0", "aria-label": title, text });
  return element("section", {}, element("p", { class: "call-title", text: title }), pre);
}

customElements.define("tool-call", ToolCallElement);
