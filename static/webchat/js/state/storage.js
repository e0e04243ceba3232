/** What a browser keeps, by tab or for all of them: where it keeps nothing, or no more, a value lasts as long as the page. */

/** A storage that never throws. A browser's own may be full, forbidden, or not there at all. */
export class SafeStorage {
  #storage;
  /** What the browser could not take. @type {Map<string, string>} */
  #own = new Map();

  /** @param {() => Pick<Storage, "getItem"|"setItem"|"removeItem">} storage even to name it may throw */
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

export const tabStorage = new SafeStorage(() => sessionStorage);
export const browserStorage = new SafeStorage(() => localStorage);

/** @template T @param {() => T} act @returns {T|null} */
function tried(act) {
  try {
    return act();
  } catch {
    return null;
  }
}
