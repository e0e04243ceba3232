/** Opens the conversation of a chat: the one that the page names, the latest one with its agent, or a new one. */

import { createConversation, latestConversation, SignedOut } from "../net/api.js";
import { Backoff } from "../net/backoff.js";

/** @typedef {import("../state/conversation.js").Conversation} Conversation */
/** @typedef {import("./chat_settings.js").ChatSettings} ChatSettings */

/**
 * @typedef {Readonly<{
 *   url: string,
 *   agent: string,
 *   id: string,
 *   root: import("./dom.js").Root,
 *   onFound: (id: string) => void,
 *   onNone: () => void,
 *   onLost: (status: "reconnecting"|"signed_out") => void,
 *   onRefused: (problem: string) => void,
 * }>} Wishes `id` is the id for a new conversation. `onLost` is called if the request failed. It is retried after a
 *   pause if the server was unreachable, or when the browser is active again if the user is not signed in.
 */

export class ConversationOpener {
  #settings;
  #conversation;
  #ofAgent;

  /**
   * @param {object} parts
   * @param {import("./dom.js").Root} parts.root
   * @param {ChatSettings} parts.settings
   * @param {Conversation} parts.conversation
   * @param {(draftKey: string) => void} parts.onFound called with the key under which the draft was stored until now
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

  /**
   * @param {{isNew: boolean}} how `isNew` starts a new conversation with the agent instead of opening the latest one
   */
  open({ isNew }) {
    const { conversationId, lastId, socketUrl } = this.#settings;
    if (conversationId) this.#conversation.connect(socketUrl);
    else if (lastId && this.#conversation.hasUnsent) this.#openLast(lastId);
    else if (isNew || this.#settings.isNew) this.#startNew();
    else void this.#ofAgent.find();
  }

  /**
   * Open the conversation of the unsent messages, and create it if it does not exist on the server yet.
   * @param {string} id
   */
  #openLast(id) {
    this.#settings.begin(id);
    this.make();
  }

  /** Start a new conversation. It is created on the server when there are messages for it. */
  #startNew() {
    this.#settings.begin();
    this.#conversation.begin();
    if (this.#conversation.hasUnsent) this.make();
  }

  /** Create the conversation for a message if it does not exist yet. */
  make() {
    if (!this.#settings.conversationId) void this.#ofAgent.create();
  }

  /** Connect or retry immediately, without waiting for the end of the current pause. */
  reconnect() {
    this.#conversation.connection.reconnect();
    this.#ofAgent.revive();
  }

  /** Check the connection or retry, because the browser is online again or the page is visible again. */
  revive() {
    this.#conversation.connection.revive();
    this.#ofAgent.revive();
  }

  /** Check the connection, because the browser went offline. */
  suspect() {
    this.#conversation.connection.suspect();
  }

  close() {
    this.#ofAgent.close();
    this.#conversation.connection.close();
  }
}

export class ConversationOfAgent {
  #wishes;
  #again;
  /** Sends the pending request, and returns the callback for its response. @type {(() => Promise<() => void>)|null} */
  #question = null;
  #isAsking = false;
  #isClosed = false;

  /** @param {Wishes} wishes */
  constructor(wishes) {
    this.#wishes = wishes;
    this.#again = new Backoff(() => this.#try());
  }

  /** Find the latest conversation with the agent. */
  find() {
    const { url, agent, onFound, onNone } = this.#wishes;
    return this.#ask(async () => {
      const id = await latestConversation(url, agent);
      return id === null ? onNone : () => onFound(id);
    });
  }

  /** Create a new conversation, unless another request is still pending. */
  create() {
    const { url, agent, id, root, onFound, onRefused } = this.#wishes;
    return this.#ask(async () => {
      const answer = await createConversation(url, agent, id, root);
      return "id" in answer ? () => onFound(answer.id) : () => onRefused(answer.problem);
    });
  }

  /**
   * Retry the pending request, because the server may be reachable again, or the user may have signed in in another
   * tab.
   */
  revive() {
    void this.#try();
  }

  close() {
    this.#isClosed = true;
  }

  /** @param {() => Promise<() => void>} question */
  async #ask(question) {
    if (this.#question) return;
    this.#question = question;
    await this.#try();
  }

  async #try() {
    if (this.#isClosed || this.#isAsking || !this.#question) return;
    this.#isAsking = true;
    const tell = await this.#question().then(
      (answer) => () => {
        this.#question = null;
        answer();
      },
      (problem) => () => this.#lose(problem instanceof SignedOut),
    );
    this.#isAsking = false;
    if (!this.#isClosed) tell();
  }

  /** @param {boolean} isSignedOut */
  #lose(isSignedOut) {
    this.#wishes.onLost(isSignedOut ? "signed_out" : "reconnecting");
    if (!isSignedOut) this.#again.plan();
  }
}
