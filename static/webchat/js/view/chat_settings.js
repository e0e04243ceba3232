/** What the template says of a chat: whose it is, which conversation it shows, and where things are. */

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

  /** @param {HTMLElement} chat */
  constructor(chat) {
    this.#given = chat.dataset;
    this.conversationId = this.isNew ? "" : (chat.dataset.conversationId ?? "");
  }

  /** Whether nobody has written here yet: the first message makes the conversation. */
  get isNew() {
    return this.#given.new !== undefined;
  }

  /** The id that the conversation gets; empty = the server chooses. */
  get idToBe() {
    return this.isNew ? (this.#given.conversationId ?? "") : "";
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

  /** The conversation is there. @param {string} id */
  found(id) {
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
