/** The menu of a conversation in a list: rename, pin, export or delete. All entries share one menu and two dialogs. */

import { deleteConversation, editConversation } from "../net/api.js";
import { takeOut } from "./conversation_list.js";
import { byId, setText } from "./dom.js";

/** @typedef {import("./i18n.js").I18n} I18n */

const GAP = 4;
const STEPS = new Map([
  ["ArrowDown", 1],
  ["ArrowUp", -1],
]);
const PROBLEM_MS = 8_000;

export class ConversationMenu {
  #menu = byId(document, "conversation-menu", HTMLElement);
  #rename = byId(document, "rename-dialog", HTMLDialogElement);
  #renameInput = byId(document, "rename-input", HTMLInputElement);
  #delete = byId(document, "delete-dialog", HTMLDialogElement);
  #problem = byId(document, "menu-problem", HTMLElement);
  #url;
  #onChanged;
  #onProblem;
  #i18n;
  /** @type {HTMLElement|null} */
  #entry = null;
  /** @type {HTMLElement|null} */
  #opener = null;

  /**
   * @param {HTMLElement} region the element around the list
   * @param {{url: string, i18n: I18n, onChanged: (change: {id: string, isDeleted: boolean}) => void, onProblem?: (text: string) => void}} options `url` is the conversations' URL in the API
   */
  constructor(region, { url, i18n, onChanged, onProblem = () => {} }) {
    this.#url = url;
    this.#i18n = i18n;
    this.#onChanged = onChanged;
    this.#onProblem = onProblem;
    region.addEventListener("click", (event) => {
      const opener = /** @type {Element} */ (event.target).closest(".menu-open");
      if (opener instanceof HTMLElement) this.#open(opener);
    });
    this.#menu.addEventListener("click", (event) => this.#choose(event));
    this.#menu.addEventListener("keydown", (event) => this.#move(event));
    this.#menu.addEventListener("toggle", (event) => this.#toggled(/** @type {ToggleEvent} */ (event)));
    for (const moving of ["resize", "scroll"]) {
      window.addEventListener(moving, () => this.#follow(), { capture: true, passive: true });
    }
    for (const dialog of [this.#rename, this.#delete]) {
      dialog.querySelector("[data-close]")?.addEventListener("click", () => dialog.close());
    }
    this.#rename.addEventListener("close", () => this.#renamed());
    this.#delete.addEventListener("close", () => this.#deleted());
  }

  get #id() {
    return this.#entry?.dataset.key ?? "";
  }

  get #address() {
    return `${this.#url}/${this.#id}`;
  }

  /** @param {string} action @returns {HTMLElement|null} */
  #item(action) {
    return this.#menu.querySelector(`[data-action="${action}"]`);
  }

  /** @returns {Array<HTMLElement>} */
  get #items() {
    return /** @type {Array<HTMLElement>} */ ([...this.#menu.querySelectorAll("[role=menuitem]:not([hidden])")]);
  }

  /** @param {HTMLElement} opener */
  #open(opener) {
    this.#opener = opener;
    this.#entry = opener.closest("li");
    const isPinned = this.#entry?.hasAttribute("data-pinned") ?? false;
    for (const [action, isHidden] of /** @type {const} */ ([
      ["pin", isPinned],
      ["unpin", !isPinned],
    ])) {
      const item = this.#item(action);
      if (item) item.hidden = isHidden;
    }
    for (const format of ["markdown", "json"]) {
      this.#item(format)?.setAttribute("href", `${this.#address}/export?format=${format}`);
    }
    this.#menu.showPopover();
    this.#place(opener.getBoundingClientRect());
    this.#items[0]?.focus();
  }

  /**
   * Place the menu below the button if there is room, and otherwise above it, but always inside the window.
   * @param {DOMRect} button
   */
  #place(button) {
    const { width, height } = this.#menu.getBoundingClientRect();
    const below = button.bottom + GAP;
    const top = below + height > innerHeight ? Math.max(button.top - GAP - height, GAP) : below;
    const left = Math.min(Math.max(button.right - width, GAP), innerWidth - width - GAP);
    this.#menu.style.top = `${top}px`;
    this.#menu.style.left = `${left}px`;
  }

  /** Move the menu with its button when the window scrolls or is resized. If the button is hidden, close the menu. */
  #follow() {
    if (!this.#opener || !this.#menu.matches(":popover-open")) return;
    const button = this.#opener.getBoundingClientRect();
    if (button.width > 0) this.#place(button);
    else this.#menu.hidePopover();
  }

  /** @param {ToggleEvent} event */
  #toggled(event) {
    this.#opener?.setAttribute("aria-expanded", String(event.newState === "open"));
  }

  /** @param {KeyboardEvent} event */
  #move(event) {
    const items = this.#items;
    const at = items.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const step = STEPS.get(event.key);
    if (step) items[(at + step + items.length) % items.length]?.focus();
    else if (event.key === "Home") items[0]?.focus();
    else if (event.key === "End") items.at(-1)?.focus();
    else if (event.key === "Tab") this.#close();
    else return;
    event.preventDefault();
  }

  #close() {
    this.#menu.hidePopover();
    this.#opener?.focus();
  }

  /** @param {Event} event */
  #choose(event) {
    const item = /** @type {Element} */ (event.target).closest("[data-action]");
    if (!(item instanceof HTMLElement)) return;
    this.#close();
    const title = this.#entry?.dataset.title || (this.#entry?.querySelector(".conversation-title")?.textContent ?? "");
    switch (item.dataset.action) {
      case "rename":
        this.#renameInput.value = title;
        this.#ask(this.#rename);
        this.#renameInput.select();
        break;
      case "delete":
        setText(byId(document, "delete-subject", HTMLElement), title);
        this.#ask(this.#delete);
        break;
      case "pin":
      case "unpin":
        void this.#edit({ is_pinned: item.dataset.action === "pin" });
    }
  }

  /** @param {HTMLDialogElement} dialog */
  #ask(dialog) {
    dialog.returnValue = "";
    dialog.showModal();
  }

  #renamed() {
    const title = this.#renameInput.value.trim();
    if (this.#rename.returnValue === "rename" && title) void this.#edit({ title });
  }

  /** @param {{title?: string, is_pinned?: boolean}} changes */
  async #edit(changes) {
    const id = this.#id;
    this.#done(await editConversation(this.#address, changes), { id, isDeleted: false });
  }

  async #deleted() {
    if (this.#delete.returnValue !== "delete") return;
    const [id, entry] = [this.#id, this.#entry];
    const problem = await deleteConversation(this.#address);
    if (!problem && entry) takeOut(entry);
    this.#done(problem, { id, isDeleted: true });
  }

  /** @param {string} problem @param {{id: string, isDeleted: boolean}} change */
  #done(problem, change) {
    this.#problem.hidden = !problem;
    if (!problem) {
      this.#onChanged(change);
      return;
    }
    const text = problem === "offline" ? this.#i18n.text("edit_offline") : problem;
    setText(this.#problem, text);
    this.#onProblem(text);
    setTimeout(() => {
      this.#problem.hidden = true;
    }, PROBLEM_MS);
  }
}
