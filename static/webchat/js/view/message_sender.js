/**
 * Sends typed and spoken messages and examples, and asks first if a message may be meant as a cancel word or an answer.
 */

import { isAtWork } from "../state/reducer.js";

/** @typedef {import("../state/types.js").Attachment} Attachment */
/** @typedef {import("../state/types.js").State} State */

export class MessageSender {
  #conversation;
  #composer;
  #tray;
  #stopWords;
  #answers;
  #askToStop;
  #askToDecide;
  #onSent;

  /**
   * @param {object} parts
   * @param {import("../state/conversation.js").Conversation} parts.conversation
   * @param {import("./composer.js").Composer} parts.composer
   * @param {import("./attachments.js").AttachmentTray} parts.tray
   * @param {StopWords} parts.stopWords
   * @param {AnswerWords} parts.answers
   * @param {(message: import("./stop_question.js").DoubtfulMessage) => void} parts.askToStop
   * @param {(decision: "approve"|"deny", message: import("./stop_question.js").DoubtfulMessage) => boolean} parts.askToDecide returns whether it asked
   * @param {(before: State) => void} parts.onSent called with the state before the message
   */
  constructor({ conversation, composer, tray, stopWords, answers, askToStop, askToDecide, onSent }) {
    this.#conversation = conversation;
    this.#composer = composer;
    this.#tray = tray;
    this.#stopWords = stopWords;
    this.#answers = answers;
    this.#askToStop = askToStop;
    this.#askToDecide = askToDecide;
    this.#onSent = onSent;
  }

  /**
   * Send a typed message, or ask what it means and keep it in the field until the person answers.
   * @param {string} text
   * @returns {boolean} whether it was sent
   */
  sendTyped(text) {
    const send = () => this.#composer.sendBy((written) => this.sendWithFiles(written));
    const message = { send, keep: () => undefined };
    const decision = this.#tray.isEmpty ? this.#answers.decisionIn(text) : null;
    if (decision && this.#askToDecide(decision, { ...message, drop: () => this.#composer.clear() })) return false;
    if (!this.#isDoubtful(text)) return this.sendWithFiles(text);
    this.#askToStop(message);
    return false;
  }

  /**
   * Send a spoken message, or ask what it means. If it is not sent then, put it into the field, so that it is not lost.
   * @param {string} text
   */
  sendSpoken(text) {
    const send = () => this.send(text, { source: "voice" });
    if (this.#isDoubtful(text)) this.#askToStop({ send, keep: () => this.#composer.restore(text) });
    else send();
  }

  /**
   * Insert spoken words into the field. If something is running and the words only ask to stop, send them instead.
   * @param {string} text
   */
  dictate(text) {
    if (isAtWork(this.#conversation.state) && this.#stopWords.isStop(text)) this.send(text, { source: "voice" });
    else this.#composer.insert(text);
  }

  /**
   * Return whether something is running and the message only begins with a cancel word, so that its meaning is unclear.
   * @param {string} text
   */
  #isDoubtful(text) {
    return isAtWork(this.#conversation.state) && this.#stopWords.isDoubtful(text);
  }

  /** Send the text with the attached files. @param {string} text @returns {boolean} */
  sendWithFiles(text) {
    const isTaken = this.send(text, { attachments: this.#tray.ready });
    if (isTaken) this.#tray.clear();
    return isTaken;
  }

  /**
   * Send the message of a button. If the button is pressed again before the server has the message, send nothing.
   * @param {string} text
   * @param {ReadonlyArray<Attachment>} [attachments]
   */
  sendOnce(text, attachments = []) {
    if (!this.#conversation.isPending(text)) this.send(text, { attachments });
  }

  /**
   * @param {string} text
   * @param {object} [how]
   * @param {"typed"|"voice"} [how.source]
   * @param {string} [how.replaces] the turn whose message it replaces
   * @param {ReadonlyArray<Attachment>} [how.attachments]
   * @returns {boolean}
   */
  send(text, { source = "typed", replaces = undefined, attachments = [] } = {}) {
    const { state } = this.#conversation;
    const isTaken = this.#conversation.send(text, source, replaces, attachments);
    if (isTaken) this.#onSent(state);
    return isTaken;
  }
}

/**
 * @typedef {Readonly<{commands: ReadonlyArray<string>, patterns: ReadonlyArray<string>}>} Vocabulary The cancel words
 *   of the page's language, and patterns for whole messages that only ask to stop, in every language.
 */

/** The accents of Latin, Greek and Cyrillic letters, and the vowel signs of Arabic. */
const LEFT_OUT = /[\u0300-\u036f\u064b-\u0655]/g;

/** Longer texts cannot be cancel words. The server has the same limit. */
const MAX_LENGTH = 200;

/** Detects messages that ask to stop or only begin like a cancel word (C6). The server makes the final decision. */
export class StopWords {
  #openers;
  #whole;

  /** @param {Vocabulary} vocabulary */
  constructor({ commands, patterns }) {
    this.#openers = commands.map((command) => `${command} `);
    this.#whole = patterns.map((pattern) => new RegExp(`^(?:${pattern})$`, "u"));
  }

  /**
   * Return whether a message begins with a cancel word but continues, so that only its author knows whether it asks to
   * stop.
   * @param {string} text
   */
  isDoubtful(text) {
    const words = normalised(text);
    return this.#openers.some((opener) => words.startsWith(opener)) && !this.isStop(text);
  }

  /** Return whether a message asks to stop, and nothing else. @param {string} text */
  isStop(text) {
    if (text.length > MAX_LENGTH) return false;
    const words = normalised(text);
    return this.#whole.some((pattern) => pattern.test(words));
  }
}

/** Detects messages that answer the open question. */
export class AnswerWords {
  #words;

  /** @param {Readonly<Record<"approve"|"deny", string>>} words lists of words, separated by commas */
  constructor({ approve, deny }) {
    const wordSet = (/** @type {string} */ words) => new Set(words.split(",").map(normalised));
    this.#words = { approve: wordSet(approve), deny: wordSet(deny) };
  }

  /** @param {string} text @returns {"approve"|"deny"|null} the decision, if the message is only an answer */
  decisionIn(text) {
    const answer = normalised(text);
    if (this.#words.approve.has(answer)) return "approve";
    return this.#words.deny.has(answer) ? "deny" : null;
  }
}

/**
 * Return the words of a text in lower case, without accents and punctuation, separated by single spaces.
 * @param {string} text
 */
function normalised(text) {
  const letters = text.toLowerCase().normalize("NFKD").replace(LEFT_OUT, "").normalize("NFKC");
  return letters
    .replace(/\p{Cf}/gu, "")
    .replace(/[^\p{L}\p{M}\p{N}]+/gu, " ")
    .trim();
}
