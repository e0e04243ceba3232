/** Sends what people write, speak or choose; asks first about what may have been meant as a cancel word. */

import { isAtWork } from "../state/reducer.js";

/** @typedef {import("../state/types.js").Attachment} Attachment */
/** @typedef {import("../state/types.js").State} State */

export class MessageSender {
  #conversation;
  #composer;
  #tray;
  #stopWords;
  #askToStop;
  #onSent;

  /**
   * @param {object} parts
   * @param {import("../state/conversation.js").Conversation} parts.conversation
   * @param {import("./composer.js").Composer} parts.composer
   * @param {import("./attachment_tray.js").AttachmentTray} parts.tray
   * @param {import("../state/stop_words.js").StopWords} parts.stopWords
   * @param {(message: import("./stop_question.js").DoubtfulMessage) => void} parts.askToStop
   * @param {(before: State) => void} parts.onSent called with what was there before the message
   */
  constructor({ conversation, composer, tray, stopWords, askToStop, onSent }) {
    this.#conversation = conversation;
    this.#composer = composer;
    this.#tray = tray;
    this.#stopWords = stopWords;
    this.#askToStop = askToStop;
    this.#onSent = onSent;
  }

  /** What is doubtful stays in the field until it is answered. @param {string} text @returns {boolean} whether it was sent */
  sendTyped(text) {
    if (!this.#isDoubtful(text)) return this.sendWithFiles(text);
    const send = () => this.#composer.sendBy((written) => this.sendWithFiles(written));
    this.#askToStop({ send, keep: () => undefined });
    return false;
  }

  /** What is doubtful and not sent goes to the field: nothing that was said is lost. @param {string} text */
  sendSpoken(text) {
    const send = () => this.send(text, { source: "voice" });
    if (this.#isDoubtful(text)) this.#askToStop({ send, keep: () => this.#composer.restore(text) });
    else send();
  }

  /** Whether a message merely begins with a cancel word while something runs. @param {string} text */
  #isDoubtful(text) {
    return isAtWork(this.#conversation.state) && this.#stopWords.isDoubtful(text);
  }

  /** Send what was written, with the files that wait for it. @param {string} text @returns {boolean} */
  sendWithFiles(text) {
    const isTaken = this.send(text, { attachments: this.#tray.ready });
    if (isTaken) this.#tray.clear();
    return isTaken;
  }

  /** A button sends one message, however often it is pressed before the server has it. @param {string} text @param {ReadonlyArray<Attachment>} [attachments] */
  sendOnce(text, attachments = []) {
    if (!this.#conversation.isPending(text)) this.send(text, { attachments });
  }

  /**
   * @param {string} text
   * @param {object} [how]
   * @param {"typed"|"voice"} [how.source]
   * @param {string} [how.replaces] the turn in whose place it stands
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
