/** The way from one open question to the next: the button leads to each in turn. */

export class Tour {
  /** The question that was shown last. */
  #last = "";

  /** Where the next step leads to; after one that is gone the way begins anew. @param {ReadonlyArray<string>} keys */
  next(keys) {
    return (keys.indexOf(this.#last) + 1) % Math.max(keys.length, 1);
  }

  /** @param {ReadonlyArray<string>} keys @returns {string} the question to show, empty if there is none */
  step(keys) {
    this.#last = keys[this.next(keys)] ?? "";
    return this.#last;
  }
}
