/** The part of a tool's card that asks a person: what would run, until when it waits, and the buttons (D2). */

import { isAsked, readableInput } from "../state/approval.js";
import { element, setText } from "./dom.js";

/** @typedef {import("../state/types.js").Call} Call */
/** @typedef {import("./tool_call.js").View} View */
/** @typedef {Readonly<{decision: "approve"|"deny", remember: boolean, reason: string}>} Decision */

const MAX_REASON = 500;
/** What a tool says of itself in a few lines is read before it is allowed; an essay waits behind its head. */
const MAX_OPEN = 400;
let made = 0;

/** Shows itself only while a person is asked. */
export class ApprovalForm {
  element = element("section", { class: "approval", hidden: "" });
  #decide;
  #title = element("p", { class: "approval-title" });
  #about = element("details", { class: "approval-about" });
  #description = element("p", { class: "approval-description" });
  #input = element("dl", { class: "approval-input" });
  #time = element("span", { class: "approval-time", role: "timer", "aria-live": "off" });
  #reason = element("input", {
    class: "approval-reason",
    type: "text",
    maxlength: String(MAX_REASON),
    autocomplete: "off",
  });
  #once = element("button", { class: "button approval-once", type: "button" });
  #always = element("button", { class: "button approval-always", type: "button" });
  #deny = element("button", { class: "button approval-deny", type: "button" });
  /** @type {unknown} */
  #shown = undefined;

  /** @param {(decision: Decision) => void} decide */
  constructor(decide) {
    this.#decide = decide;
  }

  /** @param {View} view */
  build({ i18n }) {
    made += 1;
    this.#title.id = `approval-title-${made}`;
    this.#reason.id = `approval-reason-${made}`;
    this.element.setAttribute("aria-labelledby", this.#title.id);
    const label = element("label", {
      class: "approval-label",
      for: this.#reason.id,
      text: i18n.text("approval_reason"),
    });
    setText(this.#once, i18n.text("allow_once"));
    setText(this.#deny, i18n.text("deny"));
    const buttons = element("div", { class: "approval-buttons" }, this.#once, this.#always);
    const refusal = element("div", { class: "approval-refusal" }, this.#reason, this.#deny);
    const facts = element(
      "p",
      { class: "approval-facts" },
      element("span", { text: i18n.text("approval_still") }),
      this.#time,
    );
    this.#about.append(element("summary", { text: i18n.text("approval_about") }), this.#description);
    this.element.append(this.#title, this.#input, this.#about, facts, buttons, label, refusal);
  }

  /** @param {AbortSignal} signal */
  listen(signal) {
    this.#once.addEventListener("click", () => this.#say("approve", false), { signal });
    this.#always.addEventListener("click", () => this.#say("approve", true), { signal });
    this.#deny.addEventListener("click", () => this.#say("deny", false), { signal });
  }

  /** @param {Call} call @param {View} view */
  show(call, { i18n }) {
    const isShown = isAsked(call);
    this.element.hidden = !isShown;
    if (!isShown) return;
    const agent = call.subAgent?.agent ?? "";
    const host = call.approval?.host ?? "";
    const title = host ? "approval_host" : agent ? "approval_title_of" : "approval_title";
    const always = host ? "allow_host" : agent ? "allow_sub_agent" : "allow_conversation";
    setText(this.#title, i18n.text(title, { tool: call.name, agent, host }));
    setText(this.#always, i18n.text(always, { agent, host }));
    setText(this.#description, call.approval?.description ?? "");
    this.#about.hidden = !call.approval?.description;
    this.#always.hidden = !call.approval?.canRemember;
    for (const [button, key] of this.#buttons()) {
      button.disabled = call.isDeciding;
      const spoken = `${key === "allow_conversation" ? always : key}_tool`;
      button.setAttribute("aria-label", i18n.text(spoken, { tool: call.name, agent, host }));
    }
    this.#reason.disabled = call.isDeciding;
    if (this.#shown !== call.input) this.#showInput(call, i18n.text("approval_no_input"));
  }

  /** Repaint what time changes. @param {Call} call @param {View} view */
  tick(call, { i18n, now }) {
    const until = call.approval?.expiresAt ?? null;
    setText(
      this.#time,
      until === null ? "" : i18n.text("approval_left", { left: i18n.wholeClock(Math.max(0, until - now)) }),
    );
  }

  /** @returns {Array<[HTMLButtonElement, string]>} */
  #buttons() {
    return [
      [this.#once, "allow_once"],
      [this.#always, "allow_conversation"],
      [this.#deny, "deny"],
    ];
  }

  /** @param {Call} call @param {string} nothing */
  #showInput(call, nothing) {
    this.#shown = call.input;
    this.#about.open = (call.approval?.description ?? "").length <= MAX_OPEN;
    const parts = readableInput(call.input).flatMap(({ name, value }) => [
      element("dt", { text: name }),
      element("dd", {}, element("pre", { class: "call-text", tabindex: "0", "aria-label": name, text: value })),
    ]);
    this.#input.replaceChildren(...(parts.length > 0 ? parts : [element("dt", { text: nothing })]));
  }

  /** @param {Decision["decision"]} decision @param {boolean} remember */
  #say(decision, remember) {
    this.#decide({ decision, remember, reason: this.#reason.value.trim() });
  }
}
