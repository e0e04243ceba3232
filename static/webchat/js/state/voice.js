/**
 * The parts of speech input that do not need a browser: they detect the page's own voice and decide when to restart
 * recognition.
 */

/** A recogniser may report the end of an answer shortly after it was spoken. */
export const ECHO_MS = 300;
/** If the browser reports no end of the speech, it is assumed after this time, plus a time for each character. */
const START_MS = 10_000;
const CHARACTER_MS = 300;
const FAST_END_MS = 1_000;
const MAX_FAST_ENDS = 3;
const FIRST_PAUSE_MS = 250;

/** Tracks the page's own speech, so that the page does not mistake it for the person's words. */
export class EchoFilter {
  #words = new Set();
  #until = 0;

  /** @param {string} text @param {number} now milliseconds */
  begin(text, now) {
    this.#words = new Set(wordsOf(text));
    this.#until = now + START_MS + CHARACTER_MS * text.length;
  }

  /** @param {number} now milliseconds */
  end(now) {
    this.#until = now + ECHO_MS;
  }

  /**
   * Return whether the page itself is saying all of these words. It never says a cancel word, so no cancel is ignored.
   * @param {string} text
   * @param {number} now
   */
  isEcho(text, now) {
    const words = wordsOf(text);
    return now < this.#until && words.every((word) => this.#words.has(word));
  }
}

/**
 * Decides when to restart a recogniser, which stops after some seconds of silence. One that keeps failing is not
 * restarted.
 */
export class RestartPolicy {
  #startedAt = 0;
  #fastEnds = 0;

  /** @param {number} now milliseconds */
  started(now) {
    this.#startedAt = now;
  }

  /** @param {number} now @returns {number|null} milliseconds until the next start, or null to give up */
  ended(now) {
    this.#fastEnds = now - this.#startedAt < FAST_END_MS ? this.#fastEnds + 1 : 0;
    if (this.#fastEnds >= MAX_FAST_ENDS) return null;
    return this.#fastEnds === 0 ? 0 : FIRST_PAUSE_MS * 2 ** (this.#fastEnds - 1);
  }

  reset() {
    this.#fastEnds = 0;
  }
}

/** @param {string} text */
const wordsOf = (text) => text.toLocaleLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
