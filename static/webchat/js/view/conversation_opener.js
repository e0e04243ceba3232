/** Opens the conversation of a chat: the one that the page names, the latest with its agent, or a new one. */

import { ConversationOfAgent } from "../state/conversation_of_agent.js";

/** @typedef {import("../state/conversation.js").Conversation} Conversation */
/** @typedef {import("./chat_settings.js").ChatSettings} ChatSettings */

export class ConversationOpener {
  #settings;
  #conversation;
  #ofAgent;

  /**
   * @param {object} parts
   * @param {import("./dom.js").Root} parts.root
   * @param {ChatSettings} parts.settings
   * @param {Conversation} parts.conversation
   * @param {(draftKey: string) => void} parts.onFound called with the name under which the draft was kept until now
   */
  constructor({ root, settings, conversation, onFound }) {
    this.#settings = settings;
    this.#conversation = conversation;
    this.#ofAgent = new ConversationOfAgent({
      url: settings.conversationsUrl,
      get agent() {
        return settings.agent;
      },
      get id() {
        return settings.idToBe;
      },
      root,
      onFound: (id) => {
        const { draftKey } = settings;
        settings.found(id);
        conversation.connect(settings.socketUrl);
        onFound(draftKey);
      },
      onNone: () => this.#startNew(),
      onLost: (status) => conversation.wait(status),
      onRefused: (problem) => {
        settings.begin();
        conversation.refuse(problem);
      },
    });
  }

  /** @param {{isNew: boolean}} how `isNew`: a new conversation with the agent, not the latest */
  open({ isNew }) {
    const { conversationId, lastId, socketUrl } = this.#settings;
    if (conversationId) this.#conversation.connect(socketUrl);
    else if (lastId && this.#conversation.hasUnsent) this.#openLast(lastId);
    else if (isNew || this.#settings.isNew) this.#startNew();
    else void this.#ofAgent.find();
  }

  /** What was promised goes where it was meant for, whether that is on the server by now or not. @param {string} id */
  #openLast(id) {
    this.#settings.begin(id);
    this.make();
  }

  /** There is nothing on the server yet, but what was promised is to go there. */
  #startNew() {
    this.#settings.begin();
    this.#conversation.begin();
    if (this.#conversation.hasUnsent) this.make();
  }

  /** Something is to be sent: where there is no conversation yet, make one. */
  make() {
    if (!this.#settings.conversationId) void this.#ofAgent.create();
  }

  /** Try now, whatever the pause between attempts has grown to. */
  reconnect() {
    this.#conversation.connection.reconnect();
    this.#ofAgent.revive();
  }

  /** The browser is back: find out at once how things stand. */
  revive() {
    this.#conversation.connection.revive();
    this.#ofAgent.revive();
  }

  /** The browser says that it has no network. */
  suspect() {
    this.#conversation.connection.suspect();
  }

  close() {
    this.#ofAgent.close();
    this.#conversation.connection.close();
  }
}
