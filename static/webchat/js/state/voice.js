/** Speech in, without a browser: what was heard of our own voice, and when a microphone that ends by itself goes on. */

/** A recogniser may hear the end of an answer a little after it was spoken. */
export const ECHO_MS = 300;
/** The longest that speech takes whose end nobody tells: to begin, and for each character. */
const START_MS = 10_000;
const CHARACTER_MS = 300;
const FAST_END_MS = 1_000;
const MAX_FAST_ENDS = 3;
const FIRST_PAUSE_MS = 250;

/** Knows what the page says aloud, so that the page does not take it for the person's words. */
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

  /** Whether all of it is in what is spoken now. No answer has a cancel word, so none is ever dropped. @param {string} heard @param {number} now */
  isEcho(heard, now) {
    const words = wordsOf(heard);
    return now < this.#until && words.every((word) => this.#words.has(word));
  }
}

/** Recognisers end after some seconds of silence: they start again, later each time, unless they fail at once. */
export class RestartPolicy {
  #startedAt = 0;
  #fastEnds = 0;

  /** @param {number} now milliseconds */
  started(now) {
    this.#startedAt = now;
  }

  /** @param {number} now @returns {number|null} milliseconds until the next start; null = give up */
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
