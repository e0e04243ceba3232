/** The question above the composer: the call, the agent that requests it, the remaining time, and the answers (D2). */

import { askedCall, openQuestions } from "../state/overview.js";
import { argumentNodes } from "./call_details.js";
import { byId, element, focusedBeside, icon, isComposing, setText } from "./dom.js";
import { toolLabel } from "./labels.js";
import { linkTo } from "./sub_agents.js";

/** @typedef {import("./dom.js").Root} Root */
/** @typedef {import("../state/types.js").Call} Call */
/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("./dom.js").View} View */
/** @typedef {Readonly<{decision: "approve"|"deny", remember: boolean, reason: string}>} Decision */
/** @typedef {(turnId: string, toolId: string, decision: Decision) => void} Decide */

const MAX_REASON = 500;
/** A description of a tool with more characters than this is collapsed. */
const MAX_OPEN = 400;
/** Ignore clicks and keys for this long, because they may be meant for the previous content. */
const ARMED_AFTER_MS = 500;

/** Shows one open question at a time, with a button for the next one. */
export class QuestionPanel {
  #box;
  #decide;
  #leave;
  #title = element("p", { class: "question-title", id: "question-title" });
  #place = element("span", { class: "question-place" });
  #next = element("button", { class: "button-quiet question-next", type: "button" });
  #tool = element("code", { class: "question-tool" });
  #server = element("span", { class: "question-server" });
  #child = element("a", { class: "question-child", hidden: "" });
  #what = element("div", { class: "question-what" });
  #input = element("dl", { class: "call-arguments" });
  /** Markers at and after the last line of the call. A person who sees one of them has reached the end. */
  #end = element("div", { class: "question-end", "aria-hidden": "true" });
  #rest = element("div");
  #showAll = element("button", { class: "button-quiet question-show-all", type: "button", hidden: "" });
  #about = element("details", { class: "question-about" });
  #description = element("p", { class: "question-description" });
  #time = element("span", { class: "question-time", role: "timer", "aria-live": "off" });
  #once = element("button", { class: "button button-primary question-once", type: "button" });
  #onceName = element("span", { class: "visually-hidden" });
  #always = element("button", { class: "button question-always", type: "button" });
  #denyOpen = element("button", { class: "button question-deny-open", type: "button", "aria-expanded": "false" });
  #buttons = element("div", { class: "question-buttons" });
  #refusal = element("form", { class: "question-refusal", id: "question-refusal", hidden: "" });
  #reason = element("input", { class: "question-reason", id: "question-reason", type: "text", autocomplete: "off" });
  #deny = element("button", { class: "button question-deny", type: "submit" });
  #close = element("button", { class: "button-icon", type: "button" });
  /** The key of the shown question: the ids of its turn and call. */
  #key = "";
  /** The key and the request time of the last question that was new. */
  #begun = "";
  /** @type {Call|null} */
  #call = null;
  #isArmed = false;
  /** Whether the whole call was visible or expanded. The call can be allowed here only then. */
  #isRead = false;
  #isBuilt = false;
  /** @type {import("./i18n.js").I18n|null} */
  #i18n = null;
  #sight = new IntersectionObserver((entries) => this.#looked(entries.some(({ isIntersecting }) => isIntersecting)));

  /** @param {Root} root @param {Decide} decide @param {() => void} leave moves the focus when no question is open any more */
  constructor(root, decide, leave) {
    this.#box = byId(root, "question", HTMLElement);
    this.#decide = decide;
    this.#leave = leave;
  }

  /** @param {State} state @param {View} view */
  render(state, view) {
    if (!this.#isBuilt) this.#build(view);
    const keys = openQuestions(state);
    const hadFocus = this.#box.contains(focusedBeside(this.#box));
    const key = keys.includes(this.#key) ? this.#key : (keys[0] ?? "");
    const call = key ? askedCall(state, key) : null;
    const isNew = key !== this.#key || call?.approval?.requestedAt !== this.#call?.approval?.requestedAt;
    this.#key = key;
    this.#call = call;
    this.#box.hidden = this.#call === null;
    if (this.#call) {
      this.#show(this.#call, keys, view);
      if (isNew) this.#begin(this.#call, view);
    }
    if (hadFocus && this.#call === null) this.#leave();
    else if (hadFocus && (isNew || this.#call?.isDeciding)) this.#box.focus();
  }

  /** Update the remaining time. @param {View} view */
  tick({ i18n, now }) {
    const until = this.#call?.approval?.expiresAt ?? null;
    const remaining = until === null ? "" : i18n.wholeClock(Math.max(0, until - now));
    setText(this.#time, remaining ? i18n.text("approval_left", { left: remaining }) : "");
  }

  /** @param {View} view */
  #build({ i18n }) {
    this.#isBuilt = true;
    this.#i18n = i18n;
    this.#reason.maxLength = MAX_REASON;
    const label = element("span", { text: i18n.text("allow_once"), "aria-hidden": "true" });
    this.#once.append(this.#onceName, label, element("kbd", { text: "Ctrl+Enter", "aria-hidden": "true" }));
    this.#once.setAttribute("aria-keyshortcuts", "Control+Enter");
    setText(this.#denyOpen, i18n.text("deny_open"));
    this.#denyOpen.setAttribute("aria-controls", this.#refusal.id);
    setText(this.#deny, i18n.text("deny"));
    this.#close.append(icon("cross"));
    this.#close.setAttribute("aria-label", i18n.text("deny_close"));
    this.#about.append(element("summary", { text: i18n.text("approval_about") }), this.#description);
    this.#refusal.append(
      element("label", { for: this.#reason.id, text: i18n.text("approval_reason") }),
      element("div", { class: "question-refusal-row" }, this.#reason, this.#deny, this.#close),
    );
    this.#buttons.append(this.#once, this.#always, this.#denyOpen);
    const facts = element("p", { class: "question-facts", text: `${i18n.text("approval_still")} ` });
    facts.append(this.#time);
    this.#rest.append(this.#about, facts);
    this.#what.append(this.#input, this.#end, this.#showAll, this.#rest);
    this.#box.append(
      element("div", { class: "question-head" }, this.#title, this.#place, this.#next),
      element("p", { class: "question-who" }, this.#tool, this.#server, this.#child),
      this.#what,
      this.#buttons,
      this.#refusal,
    );
    this.#listen();
  }

  #listen() {
    this.#once.addEventListener("click", () => this.#say("approve", false));
    this.#showAll.addEventListener("click", () => this.#showWhole());
    this.#always.addEventListener("click", () => this.#say("approve", true));
    this.#denyOpen.addEventListener("click", () => this.#refuse(this.#refusal.hidden === true));
    this.#close.addEventListener("click", () => this.#refuse(false));
    this.#next.addEventListener("click", () => this.#box.dispatchEvent(new CustomEvent("question-next")));
    this.#refusal.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#say("deny", false);
    });
    this.#box.addEventListener("keydown", (event) => this.#pressed(event));
  }

  /** Show the next question. @param {State} state @param {View} view */
  next(state, view) {
    const keys = openQuestions(state);
    const key = keys[(keys.indexOf(this.#key) + 1) % Math.max(keys.length, 1)] ?? "";
    if (key === this.#key) return;
    this.#key = key;
    this.#call = askedCall(state, key);
    if (!this.#call) return;
    this.#show(this.#call, keys, view);
    this.#begin(this.#call, view);
    this.#box.focus();
  }

  /**
   * Prepare the panel for a question. One that returns after a reconnect keeps the written reason.
   * @param {Call} call
   * @param {View} view
   */
  #begin(call, view) {
    const key = this.#key;
    const begun = `${key} ${call.approval?.requestedAt}`;
    if (begun !== this.#begun) {
      this.#begun = begun;
      this.#refuse(false, { isFocused: false });
      this.#reason.value = "";
      this.#input.replaceChildren(...argumentNodes(call.arguments, view.i18n));
      this.#isRead = false;
      this.#showAll.hidden = true;
      this.#box.classList.remove("is-whole");
      this.#what.scrollTop = 0;
      this.#sight.disconnect(); // so that the observer reports the visibility again
      for (const part of [this.#end, this.#rest]) this.#sight.observe(part);
      this.#about.open = (call.approval?.description ?? "").length <= MAX_OPEN && !call.approval?.question;
    }
    this.#armLater();
    this.tick(view);
  }

  #armLater() {
    const key = this.#key;
    this.#arm(false);
    setTimeout(() => {
      if (this.#key === key) this.#arm(true);
    }, ARMED_AFTER_MS);
  }

  /** @param {boolean} isArmed */
  #arm(isArmed) {
    this.#isArmed = isArmed;
    const isDisabled = !isArmed || this.#call?.isDeciding === true;
    this.#deny.disabled = isDisabled;
    for (const button of [this.#once, this.#always]) button.disabled = isDisabled || !this.#isRead;
  }

  /** @param {boolean} isEndInSight */
  #looked(isEndInSight) {
    if (this.#isRead || this.#box.hidden) return;
    if (isEndInSight) this.#setRead();
    else if (this.#i18n) {
      setText(this.#showAll, this.#i18n.count("question_show_all", this.#lines()));
      this.#showAll.hidden = false;
    }
  }

  #setRead() {
    const hadFocus = focusedBeside(this.#box) === this.#showAll;
    this.#isRead = true;
    this.#showAll.hidden = true;
    this.#arm(this.#isArmed);
    if (hadFocus) this.#box.focus();
  }

  #showWhole() {
    this.#box.classList.add("is-whole");
    this.#setRead();
  }

  /** Return the number of displayed lines of the arguments. */
  #lines() {
    return [...this.#input.querySelectorAll("pre")].reduce((lines, part) => {
      const { lineHeight, paddingBlockStart, paddingBlockEnd } = getComputedStyle(part);
      const height = part.clientHeight - Number.parseFloat(paddingBlockStart) - Number.parseFloat(paddingBlockEnd);
      return lines + Math.max(1, Math.round(height / Number.parseFloat(lineHeight)));
    }, 0);
  }

  /** The key of the open question, or "" if there is none. */
  get asked() {
    return this.#call && !this.#call.isDeciding ? this.#key : "";
  }

  /**
   * Answer the question from another control, if it is still open. If the call was not fully visible, only show all of
   * it.
   * @param {"approve"|"deny"} decision
   * @param {string} key
   */
  answer(decision, key) {
    if (key !== this.#key || this.#call === null || !this.#isArmed) return;
    if (decision === "deny" || this.#isRead) this.#say(decision, false);
    else {
      this.#showWhole();
      this.#armLater(); // ignore a key that is held down
    }
  }

  /** @param {Call} call @param {ReadonlyArray<string>} keys @param {View} view */
  #show(call, keys, view) {
    const { i18n } = view;
    const agent = call.subAgent?.agent ?? "";
    const { host = "", description = "", question = "", canRemember = false } = call.approval ?? {};
    const words = { tool: toolLabel(call), agent, host, question };
    setText(this.#title, i18n.text(titleKey(words), words));
    setText(this.#tool, call.name);
    setText(this.#server, call.server ? i18n.text("tool_server", { server: call.server }) : "");
    linkTo(this.#child, call.subAgent, view);
    setText(this.#description, description);
    this.#about.hidden = !description;
    this.#always.hidden = !canRemember;
    setText(this.#always, i18n.text(alwaysKey(call, words, i18n), words));
    setText(this.#onceName, i18n.text("allow_once_tool", words));
    this.#deny.setAttribute("aria-label", i18n.text("deny_tool", words));
    this.#place.hidden = this.#next.hidden = keys.length < 2;
    const n = keys.length;
    setText(this.#place, i18n.text("question_place", { k: keys.indexOf(this.#key) + 1, n }));
    setText(this.#next, i18n.text("question_next"));
    this.#reason.disabled = call.isDeciding;
    this.#arm(this.#isArmed);
  }

  /** Open or close the field for the reason. @param {boolean} isOpen @param {{isFocused?: boolean}} [how] */
  #refuse(isOpen, { isFocused = true } = {}) {
    this.#refusal.hidden = !isOpen;
    this.#denyOpen.setAttribute("aria-expanded", String(isOpen));
    if (isFocused) (isOpen ? this.#reason : this.#denyOpen).focus();
  }

  /**
   * Close the field for the reason without moving the focus. The field keeps its content.
   * @returns {boolean} whether it was open
   */
  closeOpen() {
    if (this.#box.hidden || this.#refusal.hidden) return false;
    this.#refuse(false, { isFocused: false });
    return true;
  }

  /** @param {KeyboardEvent} event */
  #pressed(event) {
    if (isComposing(event)) return;
    const isInRefusal = this.#refusal.contains(/** @type {Node} */ (event.target));
    if (event.key === "Escape" && !this.#refusal.hidden) {
      event.preventDefault();
      this.#refuse(false);
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      if (!isInRefusal) this.answer("approve", this.#key);
    }
  }

  /** @param {Decision["decision"]} decision @param {boolean} remember */
  #say(decision, remember) {
    if (!this.#isArmed || this.#call === null || this.#call.isDeciding) return;
    if (decision === "approve" && !this.#isRead) return;
    const [turnId = "", ...toolId] = this.#key.split(" ");
    const reason = decision === "deny" ? this.#reason.value.trim() : "";
    // A second click may come before the next animation frame shows the effect of this one.
    this.#call = { ...this.#call, isDeciding: true };
    // A focused button that is disabled loses the focus in the next animation frame, perhaps before `render` checks the
    // focus.
    if (this.#box.contains(focusedBeside(this.#box))) this.#box.focus();
    this.#arm(this.#isArmed);
    this.#decide(turnId, toolId.join(" "), { decision, remember, reason });
  }
}

/** @param {{host: string, agent: string, question: string}} words */
function titleKey({ host, agent, question }) {
  if (host) return "approval_host";
  if (question) return agent ? "approval_question_of" : "approval_question";
  return agent ? "approval_title_of" : "approval_title";
}

/** @param {Call} call @param {{host: string, agent: string, question: string}} words @param {import("./i18n.js").I18n} i18n */
function alwaysKey({ name }, { host, agent, question }, i18n) {
  if (host) return "allow_host";
  const key = agent ? "allow_sub_agent" : "allow_conversation";
  const own = `${key}_${name}`;
  return question && i18n.has(own) ? own : key;
}
