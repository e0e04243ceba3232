/** Returns the page's translated texts, and formats numbers, plurals and durations in its language. */

/** @typedef {import("../state/types.js").Texts} Texts */

/** The letters of right-to-left scripts. */
const FROM_THE_RIGHT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/**
 * Return a name for use in a sentence. A right-to-left name is isolated, so that the words beside it keep their order.
 * @param {string} name
 */
const isolated = (name) => (FROM_THE_RIGHT.test(name) ? `\u2068${name}\u2069` : name);

/** The page's texts by key, with the number formats and plural rules of its language. */
export class I18n {
  #texts;
  #plurals;
  #numbers;
  #tenths;
  /** Cached, because creating one is slow. @type {Intl.DateTimeFormat|null} */
  #times = null;

  /** @param {Texts} texts @param {string} language */
  constructor(texts, language) {
    this.language = language;
    this.#texts = texts;
    this.#plurals = new Intl.PluralRules(language);
    this.#numbers = new Intl.NumberFormat(language, { maximumFractionDigits: 1 });
    this.#tenths = new Intl.NumberFormat(language, { minimumFractionDigits: 1, maximumFractionDigits: 1 });
  }

  /** @param {string} key @param {Record<string, string|number>} [params] @returns {string} */
  text(key, params = {}) {
    const pattern = this.#texts[key] ?? key;
    return pattern.replace(/\{(\w+)\}/g, (whole, name) => {
      const value = params[name] ?? whole;
      return typeof value === "number" ? this.number(value) : isolated(String(value));
    });
  }

  /** @param {string} key @returns {boolean} */
  has(key) {
    return key in this.#texts;
  }

  /** Return the time of day of a timestamp. @param {string} at */
  time(at) {
    this.#times ??= new Intl.DateTimeFormat(this.language, { timeStyle: "short" });
    return this.#times.format(new Date(at));
  }

  /** Return a number in the format of the language. @param {number} n */
  number(n) {
    return this.#numbers.format(n);
  }

  /**
   * Return the plural form of a text for `n`: that of `key_one`, `key_other`, or another form of the language.
   * @param {string} key
   * @param {number} n
   * @param {Record<string, string>} [params]
   */
  count(key, n, params = {}) {
    const form = `${key}_${this.#plurals.select(n)}`;
    return this.text(form in this.#texts ? form : `${key}_other`, { ...params, n });
  }

  /** Return a running time in whole seconds or, after a minute, in minutes and seconds. @param {number} ms */
  wholeClock(ms) {
    return ms < 60_000 ? this.text("seconds", { n: Math.floor(ms / 1000) }) : minutes(ms);
  }

  /** Return a running time, with tenths of a second below ten seconds. @param {number} ms */
  clock(ms) {
    if (ms < 10_000) return this.text("seconds", { n: this.#tenths.format(Math.floor(ms / 100) / 10) });
    return this.wholeClock(ms);
  }

  /** Return a final duration or a limit. @param {number} ms */
  duration(ms) {
    if (ms < 100) return this.text("under_tenth");
    if (ms < 60_000) return this.text("seconds", { n: this.#numbers.format(Math.round(ms / 100) / 10) });
    if (ms % 60_000 === 0 && ms < 3_600_000) return this.text("minutes", { n: ms / 60_000 });
    return minutes(ms);
  }
}

/** @param {number} ms */
function minutes(ms) {
  const seconds = Math.floor(ms / 1000);
  const padded = (/** @type {number} */ n) => String(n).padStart(2, "0");
  const hours = Math.floor(seconds / 3600);
  const rest = `${padded(Math.floor((seconds % 3600) / 60))}:${padded(seconds % 60)}`;
  return hours ? `${hours}:${rest}` : rest;
}
