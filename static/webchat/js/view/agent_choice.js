/** Who answers from now on: chosen in the header, where there is more than one agent. */

import { editConversation } from "../net/conversation_edits.js";

/** @typedef {import("./i18n.js").I18n} I18n */
/** @typedef {import("./announcements.js").Announcement} Announcement */

export class AgentChoice {
  #app;
  #select;
  #i18n;
  #say;

  /** @param {HTMLElement} app @param {I18n} i18n @param {(announcement: Announcement) => void} say */
  constructor(app, i18n, say) {
    this.#app = app;
    this.#i18n = i18n;
    this.#say = say;
    const found = document.getElementById("chat-agent");
    this.#select = found instanceof HTMLSelectElement ? found : null;
    this.#select?.addEventListener("change", () => void this.#choose());
  }

  /** Somebody may have chosen in another tab. @param {string} agent */
  show(agent) {
    this.#app.dataset.agent = agent;
    if (this.#select) this.#select.value = agent;
  }

  /** An empty page has the samples of its agent; what is being written stays. @param {string} address */
  #showEmpty(address) {
    const input = document.getElementById("composer-input");
    if (input instanceof HTMLTextAreaElement && input.value) history.replaceState(null, "", address);
    else location.replace(address);
  }

  async #choose() {
    const { agent: before = "", conversationsUrl = "", conversationId = "" } = this.#app.dataset;
    const agent = this.#select?.value ?? "";
    this.#app.dataset.agent = agent;
    if (this.#app.dataset.new !== undefined) {
      this.#showEmpty(`?${new URLSearchParams({ agent })}`);
      return;
    }
    const problem = await editConversation(`${conversationsUrl}/${conversationId}`, { agent });
    if (problem) this.show(before);
    const text = problem === "offline" ? this.#i18n.text("edit_offline") : problem;
    this.#say({ text: text || this.#i18n.text("agent_from_next", { agent }), urgent: problem !== "" });
  }
}
