/** What tells a person in another tab that decisions are wanted or a long turn has ended: the page's title, and the way back. */

import { openQuestions, questionsElsewhere } from "../state/overview.js";
import { isTurnOver } from "../state/status.js";
import { byId } from "./dom.js";
import { wasLong } from "./turn_notification.js";

/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("./tool_call.js").View} View */

export class Attention {
  #back = byId(document, "back", HTMLAnchorElement);
  #title = document.title;
  #conversationId;
  #hasEnded = false;

  /** @param {string} conversationId the conversation of this page */
  constructor(conversationId) {
    this.#conversationId = conversationId;
  }

  get title() {
    return this.#title;
  }

  /** The conversation got its title. @param {string} title */
  name(title) {
    this.#title = `${title} · ${document.title.split(" · ").at(-1)}`;
  }

  /** Return the long turn that has ended out of sight, if one did. @param {State} before @param {State} after */
  ended(before, after) {
    if (document.visibilityState === "visible") return null;
    const wasAtWork = new Set(before.turns.filter(({ status }) => !isTurnOver(status)).map(({ id }) => id));
    const turn = after.turns.find(({ id, status }) => isTurnOver(status) && wasAtWork.has(id));
    if (!turn || !wasLong(turn)) return null;
    this.#hasEnded = true;
    return turn;
  }

  /** @param {State} state @param {Pick<View, "i18n">} view */
  render(state, { i18n }) {
    if (document.visibilityState === "visible") this.#hasEnded = false;
    const elsewhere = questionsElsewhere(state, this.#conversationId);
    const asked = openQuestions(state).length + elsewhere;
    const ended = this.#hasEnded ? i18n.text("title_ended", { title: this.#title }) : this.#title;
    const title = asked > 0 ? i18n.text("title_asked", { n: asked, title: this.#title }) : ended;
    if (document.title !== title) document.title = title;
    this.#back.toggleAttribute("data-asked", elsewhere > 0);
    this.#back.setAttribute("aria-label", elsewhere > 0 ? i18n.count("back_asked", elsewhere) : i18n.text("back"));
  }
}
