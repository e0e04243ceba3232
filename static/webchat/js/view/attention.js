/** What tells a person in another tab that decisions are wanted: the title of the page, and the way back to the list. */

import { openQuestions, questionsElsewhere } from "../state/overview.js";
import { byId } from "./dom.js";

/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("./tool_call.js").View} View */

export class Attention {
  #back = byId("back", HTMLAnchorElement);
  #title = document.title;
  #conversationId;

  /** @param {string} conversationId the conversation of this page */
  constructor(conversationId) {
    this.#conversationId = conversationId;
  }

  /** The conversation got its title. @param {string} title */
  name(title) {
    this.#title = `${title} · ${document.title.split(" · ").at(-1)}`;
  }

  /** @param {State} state @param {View} view */
  render(state, { i18n }) {
    const elsewhere = questionsElsewhere(state, this.#conversationId);
    const asked = openQuestions(state).length + elsewhere;
    const title = asked > 0 ? i18n.text("title_asked", { n: asked, title: this.#title }) : this.#title;
    if (document.title !== title) document.title = title;
    this.#back.toggleAttribute("data-asked", elsewhere > 0);
    this.#back.setAttribute("aria-label", elsewhere > 0 ? i18n.count("back_asked", elsewhere) : i18n.text("back"));
  }
}
