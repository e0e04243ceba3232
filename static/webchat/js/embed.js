/** `<turnkeeper-chat>`: a chat in a page of somebody else. Its elements and its style stand in a shadow tree of its own. */

import { Chat } from "./view/chat.js";

class TurnkeeperChatElement extends HTMLElement {
  /** The chat as the server has rendered it. @type {Node|null} */
  #blank = null;
  /** @type {Chat|null} */
  #chat = null;

  connectedCallback() {
    const root = this.shadowRoot ?? this.#rootFromTemplate();
    const chat = root?.getElementById("chat");
    if (!root || !chat) return; // nobody is signed in, and the template says so
    this.#blank ??= chat.cloneNode(true);
    this.#start(root, { isNew: false });
  }

  disconnectedCallback() {
    this.#chat?.close();
    this.#chat = null;
  }

  /** @param {ShadowRoot} root @param {{isNew: boolean}} how */
  #start(root, { isNew }) {
    this.#chat?.close();
    if (this.#blank) root.getElementById("chat")?.replaceWith(this.#blank.cloneNode(true));
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

if (!customElements.get("turnkeeper-chat")) customElements.define("turnkeeper-chat", TurnkeeperChatElement);
