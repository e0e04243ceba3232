/** Defines `<turnkeeper-chat>`, a chat in a host page. Its elements and styles are in their own shadow tree. */

import { Chat } from "./view/chat.js";
import { byId } from "./view/dom.js";

class TurnkeeperChatElement extends HTMLElement {
  /** The chat as the server rendered it. Each new conversation starts with a copy of it. @type {Node|null} */
  #blank = null;
  /** @type {Chat|null} */
  #chat = null;

  connectedCallback() {
    const root = this.shadowRoot ?? this.#rootFromTemplate();
    if (!root?.getElementById("chat")) return; // the user is not signed in, and the template has only a link to the sign-in page
    this.#start(root, { isNew: false });
  }

  disconnectedCallback() {
    this.#chat?.close();
    this.#chat = null;
  }

  /** @param {ShadowRoot} root @param {{isNew: boolean}} how */
  #start(root, { isNew }) {
    this.#chat?.close();
    const chat = byId(root, "chat", HTMLElement);
    if (this.#blank) chat.replaceWith(this.#blank.cloneNode(true));
    else this.#blank = blankCopy(chat); // the first chat stays in place, because the user may already be typing in it
    this.#chat = new Chat(root, { onBegin: () => this.#start(root, { isNew: true }) });
    void this.#chat.start({ isNew });
  }

  /**
   * Create the shadow tree from the template. Only HTML that a script inserted needs this, because a loaded page
   * already has it.
   */
  #rootFromTemplate() {
    const template = this.querySelector("template");
    if (!template) return null;
    const root = this.attachShadow({ mode: "open" });
    root.append(template.content.cloneNode(true));
    return root;
  }
}

/**
 * Return a copy of the chat with empty fields, because a cloned field keeps the typed text.
 * @param {HTMLElement} chat
 */
function blankCopy(chat) {
  const copy = /** @type {HTMLElement} */ (chat.cloneNode(true));
  for (const form of copy.querySelectorAll("form")) form.reset();
  return copy;
}

if (!customElements.get("turnkeeper-chat")) customElements.define("turnkeeper-chat", TurnkeeperChatElement);
