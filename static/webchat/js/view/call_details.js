/** The details of an open card: the tool, its limit, arguments, output and result. */

import { lengthOf } from "../state/calls.js";
import { isCallOver } from "../state/status.js";
import { attachmentList } from "./attachments.js";
import { copyText, sayOnCopyButton } from "./clipboard.js";
import { element, focusedBeside, setText } from "./dom.js";
import { limitChangeLabel, limitFact, toolLabel } from "./labels.js";

/** @typedef {import("../state/types.js").Call} Call */
/** @typedef {import("./dom.js").View} View */
/**
 * @typedef {(tell: (whole: string|null) => void) => void} AskForResult Fetches the whole result, and passes it to
 * `tell`, or null if it cannot be fetched.
 */

const COPIED_MS = 1_500;

/** The details of a call, shown when its card is open. */
export class CallDetails {
  element = element("div", { class: "call-body", hidden: "" });
  #askForResult;
  #facts = element("dl", { class: "call-facts" });
  #progress = element("progress", { class: "call-progress" });
  #tail = element("pre", { class: "call-tail", tabindex: "0" });
  #output = element("section", {}, element("p", { class: "call-title" }), this.#tail);
  #arguments = element("dl", { class: "call-arguments" });
  #result = element("pre", { class: "call-text", tabindex: "0" });
  #copy = element("button", { class: "button-quiet call-copy", type: "button" });
  #copyLabel = "";
  #showAll = element("button", { class: "button-quiet call-show-all", type: "button" });
  #download = element("a", { class: "button-quiet call-download", download: "" });
  #cut = element("span", { class: "call-cut" });
  #results = element("section", { hidden: "" });
  #images = element("div", { class: "call-images", hidden: "" });
  /** The whole result, if it was requested. @type {string|null} */
  #whole = null;
  /** @type {Call["arguments"]|null} */
  #shownArguments = null;

  /** @param {AskForResult} askForResult @param {string} address the URL of the whole result */
  constructor(askForResult, address) {
    this.#askForResult = askForResult;
    this.#download.setAttribute("href", `${address}?download=true`);
  }

  get isOpen() {
    return !this.element.hidden;
  }

  /** @param {View} view */
  build({ i18n }) {
    setText(/** @type {Element} */ (this.#output.firstElementChild), i18n.text("output_so_far"));
    setText(this.#download, i18n.text("download"));
    this.#tail.setAttribute("aria-label", i18n.text("output_so_far"));
    this.#result.setAttribute("aria-label", i18n.text("result"));
    const title = element("p", { class: "call-title", text: i18n.text("result") });
    this.#results.append(
      element("div", { class: "call-result-head" }, title, this.#cut, this.#showAll, this.#copy, this.#download),
      this.#result,
      this.#images,
    );
    this.element.append(this.#facts, this.#progress, this.#output, this.#arguments, this.#results);
    this.#showAll.addEventListener("click", () => {
      if (this.#showAll.ariaDisabled !== "true") this.#fetch(i18n);
    });
    this.#copy.addEventListener("click", () => this.#copyResult(i18n));
  }

  /** @param {Call} call @param {View} view */
  show(call, view) {
    const { i18n } = view;
    const isRunning = call.status === "running" || call.status === "cancelling";
    this.#showFacts(call, view);
    this.#showProgress(call);
    this.#output.hidden = !isRunning || !call.tail;
    if (!this.#output.hidden) setText(this.#tail, call.tail);
    if (this.#shownArguments !== call.arguments) this.#showArguments(call, i18n);
    this.#results.hidden = call.result === null;
    if (call.result === null) return;
    this.#showImages(call, view);
    const shown = lengthOf(call.result);
    const isCut = shown < call.resultLength;
    const isWhole = this.#whole !== null || !isCut;
    setText(this.#result, (this.#whole ?? call.result) || i18n.text("result_empty"));
    this.#cut.hidden = isWhole;
    this.#showAll.hidden = isWhole;
    this.#download.hidden = !isCut;
    this.#download.setAttribute("aria-label", i18n.text("download_result", { tool: toolLabel(call) }));
    setText(this.#cut, i18n.text("shown_of", { shown, n: call.resultLength }));
    setText(this.#showAll, i18n.text("show_all", { n: call.resultLength }));
    this.#copyLabel = i18n.text("copy_result", { tool: toolLabel(call) });
    if (!this.#copy.textContent) sayOnCopyButton(this.#copy, i18n.text("copy"), this.#copyLabel);
  }

  /** @param {Call} call @param {View} view */
  #showImages({ images }, { i18n, fileUrl = "" }) {
    this.#images.hidden = images.length === 0;
    if (this.#images.hidden || this.#images.hasChildNodes()) return;
    this.#images.append(attachmentList(images, i18n, fileUrl, i18n.text("result_images")));
  }

  /** @param {Call} call @param {View} view */
  #showFacts(call, { i18n, viewer }) {
    const server = call.server ? ` · ${i18n.text("tool_server", { server: call.server })}` : "";
    const limit = [limitFact(i18n, call), ...call.limitChanges.map((change) => limitChangeLabel(i18n, change, viewer))];
    const hasLimit = isCallOver(call.status) || call.status === "running" || call.status === "cancelling";
    /** @type {Array<[string, string]>} */
    const facts = [[i18n.text("tool_name"), `${call.name}${server}`]];
    if (hasLimit) facts.push([i18n.text("limit"), limit.filter(Boolean).join("; ")]);
    const key = facts.map(([name, value]) => `${name}\n${value}`).join("\n");
    if (this.#facts.dataset.shown === key) return;
    this.#facts.dataset.shown = key;
    this.#facts.replaceChildren(
      ...facts.map(([name, value]) =>
        element("div", {}, element("dt", { text: name }), element("dd", { text: value })),
      ),
    );
  }

  /** @param {Call} call */
  #showProgress(call) {
    const { progress, total } = call;
    this.#progress.hidden = progress === null || !total || isCallOver(call.status);
    if (this.#progress.hidden || !total) return;
    this.#progress.max = total;
    this.#progress.value = Math.min(progress ?? 0, total);
    this.#progress.setAttribute("aria-label", toolLabel(call));
  }

  /** @param {Call} call @param {import("./i18n.js").I18n} i18n */
  #showArguments(call, i18n) {
    this.#shownArguments = call.arguments;
    this.#arguments.replaceChildren(...argumentNodes(call.arguments, i18n));
  }

  /**
   * Fetch and show the whole result. If the button has the focus, move the focus to the result.
   * @param {import("./i18n.js").I18n} i18n
   * @param {() => void} [then]
   */
  #fetch(i18n, then = () => {}) {
    this.#showAll.ariaDisabled = "true";
    this.#askForResult((whole) => {
      this.#showAll.ariaDisabled = null;
      if (whole === null) {
        setText(this.#cut, i18n.text("result_failed"));
        return;
      }
      this.#whole = whole;
      setText(this.#result, whole);
      this.#cut.hidden = true;
      if (focusedBeside(this.element) === this.#showAll) this.#result.focus();
      this.#showAll.hidden = true;
      then();
    });
  }

  /** Copy the whole result, even if only a part is shown. @param {import("./i18n.js").I18n} i18n */
  #copyResult(i18n) {
    if (!this.#showAll.hidden) {
      this.#fetch(i18n, () => this.#copyResult(i18n));
      return;
    }
    void copyText(this.#result.textContent ?? "").then((isCopied) => {
      const say = (/** @type {string} */ key) => sayOnCopyButton(this.#copy, i18n.text(key), this.#copyLabel);
      say(isCopied ? "copied" : "copy_failed");
      setTimeout(() => say("copy"), COPIED_MS);
    });
  }
}

/**
 * Return elements with the readable arguments of a call.
 * @param {Call["arguments"]} all
 * @param {import("./i18n.js").I18n} i18n
 * @returns {Array<HTMLElement>}
 */
export function argumentNodes(all, i18n) {
  const parts = all.map(({ name, value }) => {
    const label = name || i18n.text("arguments");
    const text = element("pre", { class: "call-text", tabindex: "0", "aria-label": label, text: value });
    return element("div", {}, element("dt", { text: label }), element("dd", {}, text));
  });
  const nothing = i18n.text("approval_no_input");
  return parts.length > 0 ? parts : [element("div", {}, element("dt", { text: nothing }), element("dd"))];
}
