/** Schedules retries with growing, randomised pauses, so that clients do not all retry at the same moment. */

const FIRST_DELAY_MS = 500;
const LAST_DELAY_MS = 10_000;

/**
 * Return the pause in milliseconds after this many failures.
 * @param {number} failures
 * @param {number} firstMs
 * @param {number} chance a random number from 0 to 1
 */
export const pauseAfter = (failures, firstMs, chance) =>
  Math.min(LAST_DELAY_MS, firstMs * 2 ** failures) * (0.5 + chance / 2);

/** Schedules one retry at a time. */
export class Backoff {
  #attempt;
  #failures = 0;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer = undefined;

  /** @param {() => void} attempt */
  constructor(attempt) {
    this.#attempt = attempt;
  }

  /** Schedule a retry after a failure, unless one is already scheduled. */
  plan() {
    if (this.#timer !== undefined) return;
    const pause = pauseAfter(this.#failures, FIRST_DELAY_MS, Math.random());
    this.#failures += 1;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#attempt();
    }, pause);
  }

  /** Reset the pause after a success. A retry that is already scheduled is not cancelled. */
  reset() {
    this.#failures = 0;
  }
}
