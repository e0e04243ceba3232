/** How far a person has looked at each conversation in this browser: the number of the last event, by user and conversation. */

const MOST = 500;

/** One user's marks in a storage that the browser's tabs share. */
export class ReadMarks {
  #storage;
  #key;
  /** @type {Map<string, number>} */
  #seen;

  /** @param {Pick<Storage, "getItem"|"setItem">} storage @param {string} user */
  constructor(storage, user) {
    this.#storage = storage;
    this.#key = `seen:${user}`;
    this.#seen = this.#read();
  }

  /** Another tab has looked at something. */
  reload() {
    this.#seen = this.#read();
  }

  /** @param {string} id @param {number} seq the last event that was in sight */
  see(id, seq) {
    if (seq <= (this.#seen.get(id) ?? -1)) return;
    this.#seen = this.#read();
    this.#seen.delete(id);
    this.#seen.set(id, seq);
    this.#storage.setItem(this.#key, JSON.stringify([...this.#seen].slice(-MOST)));
  }

  /** Whether something has happened since; what a list shows for the first time counts as looked at. @param {string} id @param {number} seq */
  isUnread(id, seq) {
    const seen = this.#seen.get(id);
    if (seen === undefined) this.see(id, seq);
    return seen !== undefined && seq > seen;
  }

  /** @returns {Map<string, number>} */
  #read() {
    try {
      const kept = JSON.parse(this.#storage.getItem(this.#key) ?? "[]");
      return new Map(kept);
    } catch {
      return new Map();
    }
  }
}
