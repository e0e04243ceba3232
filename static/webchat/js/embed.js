/** `<turnkeeper-chat>`: a chat in a page of somebody else. Its elements and its style stand in a shadow tree of its own. */

import { Chat } from "./view/chat.js";
import { byId } from "./view/dom.js";

class TurnkeeperChatElement extends HTMLElement {
  /** The chat as the server has rendered it: one that follows begins with a copy. @type {Node|null} */
  #blank = null;
  /** @type {Chat|null} */
  #chat = null;

  connectedCallback() {
    const root = this.shadowRoot ?? this.#rootFromTemplate();
    if (!root?.getElementById("chat")) return; // nobody is signed in, and the template says so
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
    else this.#blank = blankCopy(chat); // somebody may be writing in the first one: it stays where it is
    this.#chat = new Chat(root, { onBegin: () => this.#start(root, { isNew: true }) });
    void this.#chat.start({ isNew });
  }

  /** A page that is loaded has a shadow tree from the start. Where a script puts its HTML in, it has a plain template. */
  #rootFromTemplate() {
    const template = this.querySelector("template");
    if (!template) return null;
    const root = this.attachShadow({ mode: "open" });
    root.append(template.content.cloneNode(true));
    return root;
  }
}

/** A copy of a field has what was typed into it. @param {HTMLElement} chat */
function blankCopy(chat) {
  const copy = /** @type {HTMLElement} */ (chat.cloneNode(true));
  for (const form of copy.querySelectorAll("form")) form.reset();
  return copy;
}

if (!customElements.get("turnkeeper-chat")) customElements.define("turnkeeper-chat", TurnkeeperChatElement);
