/** Whether what a person writes asks to stop, or merely begins as if it did (C6). What counts is the server's word. */

/**
 * @typedef {Readonly<{commands: ReadonlyArray<string>, patterns: ReadonlyArray<string>}>} Vocabulary The cancel words of the page's
 *   languages, and the patterns of whole messages that only ask to stop.
 */

/** Accents of Latin, Greek and Cyrillic letters, and the vowel signs of Arabic. */
const LEFT_OUT = /[\u0300-\u036f\u064b-\u0655]/g;

export class StopWords {
  #openers;
  #whole;

  /** @param {Vocabulary} vocabulary */
  constructor({ commands, patterns }) {
    this.#openers = commands.map((command) => `${command} `);
    this.#whole = patterns.map((pattern) => new RegExp(`^(?:${pattern})$`, "u"));
  }

  /** Whether a message begins with a cancel word and is none: nobody but its author knows what is meant. @param {string} text */
  isDoubtful(text) {
    const words = normalised(text);
    return (
      this.#openers.some((opener) => words.startsWith(opener)) && !this.#whole.some((pattern) => pattern.test(words))
    );
  }
}

/** The words of a text with one blank between them, without accents and punctuation. @param {string} text */
function normalised(text) {
  const letters = text.toLowerCase().normalize("NFKD").replace(LEFT_OUT, "").normalize("NFKC");
  return letters
    .replace(/\p{Cf}/gu, "")
    .replace(/[^\p{L}\p{M}\p{N}]+/gu, " ")
    .trim();
}
