/** What was promised to be sent, kept in the browser's tab until the server has it: by user and conversation. */

/** @typedef {Readonly<{clientId: string, text: string, source: "typed"|"voice", replaces?: string,
 *   attachments?: ReadonlyArray<import("../net/wire.js").AttachmentContent>}>} Kept */

/** One conversation's outbox of one user. */
export class Outbox {
  #storage;
  #key;
  user;

  /** @param {Pick<Storage, "getItem"|"setItem"|"removeItem">} storage @param {string} user @param {string} conversationId */
  constructor(storage, user, conversationId) {
    this.#storage = storage;
    this.user = user;
    this.#key = `outbox:${user}:${conversationId}`;
  }

  /** @returns {Array<Kept>} */
  read() {
    try {
      const kept = JSON.parse(this.#storage.getItem(this.#key) ?? "[]");
      return Array.isArray(kept) ? kept : [];
    } catch {
      return [];
    }
  }

  /** Keep exactly these. @param {ReadonlyArray<Kept>} messages */
  write(messages) {
    if (messages.length === 0) this.#storage.removeItem(this.#key);
    else this.#storage.setItem(this.#key, JSON.stringify(messages));
  }
}
