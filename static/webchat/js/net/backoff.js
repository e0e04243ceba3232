/** Retries with growing, randomised pauses, so that clients do not all retry at the same moment. */

const FIRST_DELAY_MS = 500;
const LAST_DELAY_MS = 10_000;

/** The pause after this many failures. @param {number} failures @param {number} firstMs @param {number} chance from 0 to 1 */
export const pauseAfter = (failures, firstMs, chance) =>
  Math.min(LAST_DELAY_MS, firstMs * 2 ** failures) * (0.5 + chance / 2);

/** Plans one attempt at a time. */
export class Backoff {
  #attempt;
  #failures = 0;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer = undefined;

  /** @param {() => void} attempt */
  constructor(attempt) {
    this.#attempt = attempt;
  }

  /** Plan a retry after a failure, unless one is already planned. */
  plan() {
    if (this.#timer !== undefined) return;
    const pause = pauseAfter(this.#failures, FIRST_DELAY_MS, Math.random());
    this.#failures += 1;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#attempt();
    }, pause);
  }

  /** Reset the pause after a success. A planned retry stays planned. */
  reset() {
    this.#failures = 0;
  }
}
