/** Sends what people write, speak or choose; asks first about what may have been meant as a cancel word. */

import { isAtWork } from "../state/reducer.js";

/** @typedef {import("../state/types.js").Attachment} Attachment */
/** @typedef {import("../state/types.js").State} State */

export class MessageSender {
  #conversation;
  #tray;
  #stopWords;
  #askToStop;
  #onSent;

  /**
   * @param {object} parts
   * @param {import("../state/conversation.js").Conversation} parts.conversation
   * @param {import("./attachment_tray.js").AttachmentTray} parts.tray
   * @param {import("../state/stop_words.js").StopWords} parts.stopWords
   * @param {() => void} parts.askToStop
   * @param {(before: State) => void} parts.onSent called with what was there before the message
   */
  constructor({ conversation, tray, stopWords, askToStop, onSent }) {
    this.#conversation = conversation;
    this.#tray = tray;
    this.#stopWords = stopWords;
    this.#askToStop = askToStop;
    this.#onSent = onSent;
  }

  /** What merely begins with a cancel word while something runs is asked about before it is sent. @param {string} text @returns {boolean} whether it was sent */
  sendTyped(text) {
    if (!isAtWork(this.#conversation.state) || !this.#stopWords.isDoubtful(text)) return this.sendWithFiles(text);
    this.#askToStop();
    return false;
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
