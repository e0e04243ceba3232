/** What the template says of a chat: whose it is, which conversation it shows, and where things are. */

import { newId } from "../state/conversation.js";
import { tabStorage } from "../state/storage.js";

/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("./tool_call.js").View} View */

/**
 * @typedef {Readonly<{
 *   onChanged?: (before: State, after: State) => void,
 *   onRendered?: (state: State, view: View) => void,
 *   onStored?: () => void,
 *   onBegin?: () => void,
 *   onFound?: (page: string) => void,
 * }>} Surroundings What the page around a chat wants to know of it; `onStored`: another tab has written something down;
 *   `onBegin`: the person wants a new conversation; `onFound`: there is one now, with a page of its own.
 */

export class ChatSettings {
  #given;
  /** The conversation that is shown; empty while there is none. */
  conversationId;
  /** The id that a new conversation gets. */
  idToBe;

  /** @param {HTMLElement} chat */
  constructor(chat) {
    this.#given = chat.dataset;
    this.idToBe = chat.dataset.conversationId ?? "";
    this.conversationId = this.isNew ? "" : this.idToBe;
  }

  /** Whether nobody has written here yet: the first message makes the conversation. */
  get isNew() {
    return this.#given.new !== undefined;
  }

  /** Where the page names no conversation: the one that was here last in this tab, to which what is unsent belongs. */
  get lastId() {
    return this.#given.conversationId ? "" : (tabStorage.getItem(this.#lastIdKey) ?? "");
  }

  get #lastIdKey() {
    return `conversation:${this.user}:${this.place}`;
  }

  get user() {
    return this.#given.user ?? "";
  }

  get agent() {
    return this.#given.agent ?? "";
  }

  /** Under which name this browser keeps what is unsent here. */
  get place() {
    return this.#given.conversationId || `with ${this.agent}`;
  }

  /** Under which name it keeps what is being written. That of an empty page is there on the next one, too. */
  get draftKey() {
    return `draft:${this.user}:${this.isNew ? "new" : this.place}`;
  }

  get conversationsUrl() {
    return this.#given.conversationsUrl ?? "";
  }

  get resultUrl() {
    return this.#given.resultUrl ?? "";
  }

  get messagesUrl() {
    return this.#filledIn(this.#given.messagesUrl, this.conversationId);
  }

  /** There is to be a conversation, whose id the page may have chosen. @param {string} [id] */
  begin(id = newId()) {
    if (this.#given.conversationId) return;
    this.idToBe = id;
    tabStorage.setItem(this.#lastIdKey, id);
  }

  /** The conversation is there. @param {string} id */
  found(id) {
    this.begin(id);
    this.conversationId = id;
    delete this.#given.new;
  }

  get socketUrl() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    return `${scheme}//${location.host}${this.#filledIn(this.#given.socketPath, this.conversationId)}`;
  }

  /** The page of a conversation. @param {string} id */
  pageOf(id) {
    return this.#filledIn(this.#given.conversationUrl, id);
  }

  /** @param {string|undefined} pattern @param {string} id */
  #filledIn(pattern = "", id) {
    return pattern.replace(this.#given.placeholderId ?? "", encodeURIComponent(id));
  }
}
