/** Tries again later: after each failure later than before, and never at the same moment as everybody else. */

const FIRST_DELAY_MS = 500;
const LAST_DELAY_MS = 10_000;

/** One attempt is planned at a time. */
export class Backoff {
  #attempt;
  #failures = 0;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer = undefined;

  /** @param {() => void} attempt */
  constructor(attempt) {
    this.#attempt = attempt;
  }

  /** Something failed: try again after a pause, unless that is planned already. */
  plan() {
    if (this.#timer !== undefined) return;
    const delay = Math.min(LAST_DELAY_MS, FIRST_DELAY_MS * 2 ** this.#failures);
    this.#failures += 1;
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined;
        this.#attempt();
      },
      delay * (0.5 + Math.random() / 2),
    );
  }

  /** Something succeeded: the next failure is the first again. What is planned stays. */
  reset() {
    this.#failures = 0;
  }
}
