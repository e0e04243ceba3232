/** The form above the composer, in which a running call asks the person for details in the words of its MCP server. */

import { openForms } from "../state/overview.js";
import { byId, element, focusedBeside, isComposing, setText } from "./dom.js";
import { formLabel } from "./labels.js";

/** @typedef {import("./dom.js").Root} Root */
/** @typedef {import("../state/types.js").AskedForm} AskedForm */
/** @typedef {import("../state/types.js").FormField} FormField */
/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("./dom.js").View} View */
/** @typedef {import("../state/types.js").FormContent} Content */
/** @typedef {import("../state/types.js").FormAnswer} Answer */
/** @typedef {(turnId: string, toolId: string, answer: Answer) => void} Send */

/** Ignore clicks and keys for this long, because they may be meant for the previous content. */
const ARMED_AFTER_MS = 500;
const INPUT_TYPES = { "": "text", email: "email", uri: "url", date: "date", "date-time": "text" };

/** Shows the first open form. Its fields keep their content until the form is closed. */
export class FormPanel {
  #box;
  #send;
  #leave;
  #title = element("h2", { class: "form-title", id: "form-question-title" });
  #who = element("p", { class: "question-who" });
  #form = element("form", { class: "question-what form-fields", novalidate: "" });
  #message = element("p", { class: "form-message" });
  #fields = element("div");
  #time = element("span", { class: "question-time", role: "timer", "aria-live": "off" });
  #accept = element("button", { class: "button button-primary", type: "submit" });
  #decline = element("button", { class: "button", type: "button" });
  #dismiss = element("button", { class: "button-quiet", type: "button" });
  /** @type {AskedForm|null} */
  #asked = null;
  #isBuilt = false;
  #isArmed = false;
  #isSent = false;

  /** @param {Root} root @param {Send} send @param {() => void} leave moves the focus when no form is open any more */
  constructor(root, send, leave) {
    this.#box = byId(root, "form-question", HTMLElement);
    this.#send = send;
    this.#leave = leave;
  }

  /** @param {State} state @param {View} view */
  render(state, view) {
    if (!this.#isBuilt) this.#build(view);
    const hadFocus = this.#box.contains(focusedBeside(this.#box));
    const asked = openForms(state)[0] ?? null;
    const isNew = asked?.form.questionId !== this.#asked?.form.questionId;
    this.#asked = asked;
    this.#box.hidden = asked === null;
    if (asked && isNew) this.#show(asked, view);
    if (asked) this.#disable(state, asked);
    if (hadFocus && asked === null) this.#leave();
    else if (hadFocus && isNew) this.#box.focus();
  }

  /** Update the remaining time. @param {View} view */
  tick({ i18n, now }) {
    const until = this.#asked?.form.expiresAt ?? null;
    const left = until === null ? "" : i18n.wholeClock(Math.max(0, until - now));
    setText(this.#time, left ? i18n.text("form_left", { left }) : "");
  }

  /** @param {View} view */
  #build({ i18n }) {
    this.#isBuilt = true;
    setText(this.#accept, i18n.text("form_accept"));
    setText(this.#decline, i18n.text("form_decline"));
    setText(this.#dismiss, i18n.text("form_dismiss"));
    const facts = element("p", { class: "question-facts", text: `${i18n.text("form_still")} ` });
    facts.append(this.#time);
    this.#form.id = "form-question-form";
    this.#accept.setAttribute("form", this.#form.id);
    this.#form.append(this.#message, this.#fields, facts);
    this.#box.append(
      this.#title,
      this.#who,
      this.#form,
      element("div", { class: "question-buttons" }, this.#accept, this.#decline, this.#dismiss),
    );
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.#form.reportValidity()) this.#answer("accept");
    });
    this.#decline.addEventListener("click", () => this.#answer("decline"));
    this.#dismiss.addEventListener("click", () => this.#answer("cancel"));
    this.#box.addEventListener("keydown", (event) => {
      if (isComposing(event) || event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.#form.requestSubmit();
    });
  }

  /** @param {AskedForm} asked @param {View} view */
  #show(asked, view) {
    const { i18n } = view;
    const { form } = asked;
    setText(this.#title, formLabel(i18n, asked));
    setText(this.#who, i18n.text("form_warning", { server: form.server }));
    setText(this.#message, form.message);
    this.#fields.replaceChildren(...form.fields.map((field, place) => fieldNode(field, `form-field-${place}`, i18n)));
    this.tick(view);
    this.#armLater(form.questionId);
  }

  /** @param {string} questionId */
  #armLater(questionId) {
    this.#isArmed = false;
    setTimeout(() => {
      if (this.#asked?.form.questionId === questionId) this.#arm(true);
    }, ARMED_AFTER_MS);
  }

  /** @param {boolean} isArmed */
  #arm(isArmed) {
    this.#isArmed = isArmed;
    for (const button of [this.#accept, this.#decline, this.#dismiss]) button.disabled = !isArmed || this.#isSent;
  }

  /** @param {State} state @param {AskedForm} asked */
  #disable({ operations }, { turnId, toolId }) {
    this.#isSent = operations.some(
      (operation) => operation.kind === "answer_tool" && operation.turnId === turnId && operation.toolId === toolId,
    );
    this.#arm(this.#isArmed);
  }

  /** @param {Answer["action"]} action */
  #answer(action) {
    if (this.#asked === null || !this.#isArmed || this.#isSent) return;
    const { turnId, toolId, form } = this.#asked;
    if (this.#box.contains(focusedBeside(this.#box))) this.#box.focus(); // because a button that is disabled loses the focus
    const content = action === "accept" ? this.#content(form.fields) : {};
    this.#send(turnId, toolId, { action, content, questionId: form.questionId });
  }

  /**
   * Return the entered values by field. Empty fields are omitted.
   * @param {ReadonlyArray<FormField>} fields
   * @returns {Content}
   */
  #content(fields) {
    /** @type {Content} */
    const content = {};
    fields.forEach((field, place) => {
      const inputs = [...this.#fields.querySelectorAll(`[name="form-field-${place}"]`)];
      const value = enteredIn(field, inputs);
      if (value !== null) content[field.name] = value;
    });
    return content;
  }
}

/** @param {FormField} field @param {Array<Element>} inputs @returns {Content[string]|null} */
function enteredIn({ kind, required }, inputs) {
  const [input] = inputs;
  if (kind === "choices") {
    const chosen = inputs.flatMap((each) => (each instanceof HTMLInputElement && each.checked ? [each.value] : []));
    return chosen.length > 0 || required ? chosen : null;
  }
  if (input instanceof HTMLInputElement && kind === "boolean") return input.checked;
  if (!(input instanceof HTMLInputElement || input instanceof HTMLSelectElement) || input.value === "") return null;
  return kind === "number" || kind === "integer" ? Number(input.value) : input.value;
}

/** @param {FormField} field @param {string} id @param {import("./i18n.js").I18n} i18n @returns {HTMLElement} */
function fieldNode(field, id, i18n) {
  const { title, description, required, kind } = field;
  const mark = required || kind === "boolean" ? "" : ` ${i18n.text("form_optional")}`;
  const about = description ? [element("p", { class: "form-about", id: `${id}-about`, text: description })] : [];
  if (kind === "choices") {
    const legend = element("legend", { text: title + mark });
    return element("fieldset", { class: "form-field" }, legend, ...about, ...choiceNodes(field, id));
  }
  const input = kind === "choice" ? selectNode(field) : inputNode(field);
  input.id = id;
  input.setAttribute("name", id);
  if (description) input.setAttribute("aria-describedby", `${id}-about`);
  const label = element("label", { for: id, text: title + mark });
  const parts = kind === "boolean" ? [input, label] : [label, input];
  return element("div", { class: kind === "boolean" ? "form-field form-yes" : "form-field" }, ...parts, ...about);
}

/** @param {FormField} field @returns {HTMLInputElement} */
function inputNode({ kind, format, required, default: value, minimum, maximum }) {
  const input = element("input", { class: "form-input", autocomplete: "off" });
  if (kind === "boolean") {
    input.type = "checkbox";
    input.checked = value === true;
    return input;
  }
  input.required = required;
  if (kind === "text") {
    input.type = INPUT_TYPES[format];
    if (minimum !== null) input.minLength = minimum;
    input.maxLength = Math.min(maximum ?? 4000, 4000);
  } else {
    input.type = "number";
    input.step = kind === "integer" ? "1" : "any";
    if (minimum !== null) input.min = String(minimum);
    if (maximum !== null) input.max = String(maximum);
  }
  if (typeof value === "string" || typeof value === "number") input.value = String(value);
  return input;
}

/** @param {FormField} field @returns {HTMLSelectElement} */
function selectNode({ required, options, default: value }) {
  const select = element("select", { class: "form-input" });
  select.required = required;
  select.append(element("option", { value: "", text: "" }));
  for (const option of options) select.append(element("option", { value: option.value, text: option.title }));
  select.value = typeof value === "string" ? value : "";
  return select;
}

/** @param {FormField} field @param {string} id @returns {Array<HTMLElement>} */
function choiceNodes({ options, default: value }, id) {
  const chosen = Array.isArray(value) ? value : [];
  return options.map((option, place) => {
    const input = element("input", { type: "checkbox", id: `${id}-${place}`, name: id, value: option.value });
    input.checked = chosen.includes(option.value);
    return element("p", { class: "form-yes" }, input, element("label", { for: input.id, text: option.title }));
  });
}
