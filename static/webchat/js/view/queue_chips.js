/** The messages that wait for the running turn, as chips above the composer: each can be edited and removed. */

import { queuedTurns } from "../state/reducer.js";
import { byId, element, focusedBeside, icon, placeAfter, setText } from "./dom.js";

/** @typedef {import("./dom.js").Root} Root */
/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./i18n.js").I18n} I18n */
/** @typedef {Readonly<{remove: (turnId: string) => void, edit: (turnId: string, text: string) => void, leave: () => void}>} Actions */

export class QueueChips {
  #section;
  #list;
  #actions;
  /** @type {Map<string, HTMLElement>} */
  #known = new Map();

  /** @param {Root} root @param {Actions} actions */
  constructor(root, actions) {
    this.#section = byId(root, "queue", HTMLElement);
    this.#list = byId(root, "queue-list", HTMLElement);
    this.#actions = actions;
  }

  /** @param {State} state @param {{i18n: I18n}} view */
  render(state, { i18n }) {
    const turns = queuedTurns(state);
    const focused = focusedBeside(this.#list);
    const hadFocus = this.#list.contains(focused);
    this.#section.hidden = turns.length === 0;
    const wanted = new Set(turns.map(({ id }) => id));
    for (const [id, chip] of this.#known) {
      if (wanted.has(id)) continue;
      chip.remove();
      this.#known.delete(id);
    }
    /** @type {HTMLElement|null} */
    let previous = null;
    for (const turn of turns) {
      const chip = this.#known.get(turn.id) ?? this.#made(turn, i18n);
      this.#known.set(turn.id, chip);
      for (const button of chip.querySelectorAll("button")) button.disabled = turn.stoppingAt !== null;
      placeAfter(this.#list, chip, previous);
      previous = chip;
    }
    const isLost =
      !this.#list.contains(focusedBeside(this.#list)) || (focused instanceof HTMLButtonElement && focused.disabled);
    if (hadFocus && isLost) this.#actions.leave();
  }

  /** @param {Turn} turn @param {I18n} i18n */
  #made({ id, items }, i18n) {
    const said = items.find((item) => item.kind === "user");
    const text = said?.kind === "user" ? said.text : "";
    const files = said?.kind === "user" ? said.attachments.map(({ name }) => name) : [];
    const label = [text, ...files].filter(Boolean).join(" · ");
    const words = element("span", { class: "queue-text", title: label });
    setText(words, label);
    const edit = element("button", {
      class: "button-icon",
      type: "button",
      "aria-label": i18n.text("queue_edit", { text: label }),
    });
    const remove = element("button", {
      class: "button-icon",
      type: "button",
      "aria-label": i18n.text("queue_remove", { text: label }),
    });
    edit.append(icon("pencil"));
    remove.append(icon("cross"));
    edit.addEventListener("click", () => this.#actions.edit(id, text));
    remove.addEventListener("click", () => this.#actions.remove(id));
    return element("li", { class: "queue-chip" }, words, edit, remove);
  }
}
