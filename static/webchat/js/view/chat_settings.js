/** Reads the settings of a chat from the template: its user, conversation and URLs. */

import { newId } from "../state/conversation.js";
import { tabStorage } from "../state/storage.js";

/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("./dom.js").View} View */

/**
 * @typedef {Readonly<{
 *   onChanged?: (before: State, after: State) => void,
 *   onRendered?: (state: State, view: View) => void,
 *   onStored?: () => void,
 *   onBegin?: () => void,
 *   onFound?: (page: string) => void,
 * }>} Surroundings Callbacks to the page around a chat. `onStored` is called when another tab has changed the storage,
 *   `onBegin` when the person starts a new conversation, and `onFound` when the conversation exists and has a page.
 */

export class ChatSettings {
  #dataset;
  /** The id of the shown conversation, or empty if it does not exist yet. */
  conversationId;
  /** The id for a new conversation. */
  idToBe;

  /** @param {HTMLElement} chat */
  constructor(chat) {
    this.#dataset = chat.dataset;
    this.idToBe = chat.dataset.conversationId ?? "";
    this.conversationId = this.isNew ? "" : this.idToBe;
  }

  /** Whether the first message will create the conversation. */
  get isNew() {
    return this.#dataset.new !== undefined;
  }

  /** The id of the last conversation in this tab. If the page names no conversation, unsent messages belong to it. */
  get lastId() {
    return this.#dataset.conversationId ? "" : (tabStorage.getItem(this.#lastIdKey) ?? "");
  }

  get #lastIdKey() {
    return `conversation:${this.user}:${this.place}`;
  }

  get user() {
    return this.#dataset.user ?? "";
  }

  get agent() {
    return this.#dataset.agent ?? "";
  }

  /** The storage key of unsent messages. */
  get place() {
    return this.#dataset.conversationId || `with ${this.agent}`;
  }

  /** The storage key of the draft. All empty pages share one draft. */
  get draftKey() {
    return `draft:${this.user}:${this.isNew ? "new" : this.place}`;
  }

  get conversationsUrl() {
    return this.#dataset.conversationsUrl ?? "";
  }

  get resultUrl() {
    return this.#dataset.resultUrl ?? "";
  }

  get messagesUrl() {
    return this.#filledIn(this.#dataset.messagesUrl, this.conversationId);
  }

  /** Prepare a new conversation with the page's id, if it has one. @param {string} [id] */
  begin(id = newId()) {
    if (this.#dataset.conversationId) return;
    this.idToBe = id;
    tabStorage.setItem(this.#lastIdKey, id);
  }

  /** Record that the conversation exists. @param {string} id */
  found(id) {
    this.begin(id);
    this.conversationId = id;
    delete this.#dataset.new;
  }

  get socketUrl() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    return `${scheme}//${location.host}${this.#filledIn(this.#dataset.socketPath, this.conversationId)}`;
  }

  /** Return the URL of a conversation's page. @param {string} id */
  pageOf(id) {
    return this.#filledIn(this.#dataset.conversationUrl, id);
  }

  /** @param {string|undefined} pattern @param {string} id */
  #filledIn(pattern = "", id) {
    return pattern.replace(this.#dataset.placeholderId ?? "", encodeURIComponent(id));
  }
}
