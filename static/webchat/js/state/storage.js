/** Stores data in the browser: unsent messages for this tab, and marks of read events for all tabs. */

/**
 * A storage that never throws. Values that the browser cannot store, because its storage is full or forbidden, last as
 * long as the page.
 */
export class SafeStorage {
  #storage;
  /** Values that the browser could not store. @type {Map<string, string>} */
  #own = new Map();

  /** @param {() => Pick<Storage, "getItem"|"setItem"|"removeItem">} storage a function, because even reading the property may throw */
  constructor(storage) {
    this.#storage = storage;
  }

  /** @param {string} key @returns {string|null} */
  getItem(key) {
    return this.#own.get(key) ?? tried(() => this.#storage().getItem(key));
  }

  /** @param {string} key @param {string} value */
  setItem(key, value) {
    this.#own.set(key, value);
    tried(() => {
      this.#storage().setItem(key, value);
      this.#own.delete(key);
    });
  }

  /** @param {string} key */
  removeItem(key) {
    this.#own.delete(key);
    tried(() => this.#storage().removeItem(key));
  }
}

/** @template T @param {() => T} act @returns {T|null} */
function tried(act) {
  try {
    return act();
  } catch {
    return null;
  }
}

/** @typedef {Readonly<{clientId: string, text: string, source: "typed"|"voice", replaces?: string,
 *   attachments?: ReadonlyArray<import("../net/wire.js").AttachmentContent>}>} Kept */

export const tabStorage = new SafeStorage(() => sessionStorage);

export const browserStorage = new SafeStorage(() => localStorage);

/** The stored messages of a user that are not sent yet, for one conversation. */
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
      const messages = JSON.parse(this.#storage.getItem(this.#key) ?? "[]");
      return Array.isArray(messages) ? messages : [];
    } catch {
      return [];
    }
  }

  /** Replace the stored messages. @param {ReadonlyArray<Kept>} messages */
  write(messages) {
    if (messages.length === 0) this.#storage.removeItem(this.#key);
    else this.#storage.setItem(this.#key, JSON.stringify(messages));
  }
}

const MOST = 500;

/** The last event that a user has read in each conversation. All tabs share these marks. */
export class ReadMarks {
  #storage;
  #key;
  /** @type {Map<string, number>} */
  #marks;

  /** @param {Pick<Storage, "getItem"|"setItem">} storage @param {string} user */
  constructor(storage, user) {
    this.#storage = storage;
    this.#key = `seen:${user}`;
    this.#marks = this.#read();
  }

  /** Read the marks again, because another tab has changed them. */
  reload() {
    this.#marks = this.#read();
  }

  /** @param {string} id @param {number} seq the number of the last event that was visible */
  see(id, seq) {
    if (seq <= (this.#marks.get(id) ?? -1)) return;
    this.#marks = this.#read();
    this.#marks.delete(id);
    this.#marks.set(id, seq);
    this.#storage.setItem(this.#key, JSON.stringify([...this.#marks].slice(-MOST)));
  }

  /**
   * Return whether a conversation has events after its mark. One that a list shows for the first time is considered
   * read.
   * @param {string} id
   * @param {number} seq
   */
  isUnread(id, seq) {
    const mark = this.#marks.get(id);
    if (mark === undefined) this.see(id, seq);
    return mark !== undefined && seq > mark;
  }

  /** @returns {Map<string, number>} */
  #read() {
    try {
      const entries = JSON.parse(this.#storage.getItem(this.#key) ?? "[]");
      return new Map(entries);
    } catch {
      return new Map();
    }
  }
}
