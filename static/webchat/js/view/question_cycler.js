/** Goes from one open question to the next, and from the last one to the first. */

export class QuestionCycler {
  /** The question that was shown last. */
  #last = "";

  /** Where the next step leads to; after a question that is gone it is the first. @param {ReadonlyArray<string>} keys */
  next(keys) {
    return (keys.indexOf(this.#last) + 1) % Math.max(keys.length, 1);
  }

  /** @param {ReadonlyArray<string>} keys @returns {string} the question to show, empty if there is none */
  step(keys) {
    this.#last = keys[this.next(keys)] ?? "";
    return this.#last;
  }
}
