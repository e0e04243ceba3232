/** Which conversation a chat with an agent shows: the latest, or a new one, which the server has from its first message on. */

import { Backoff } from "../net/backoff.js";
import { createConversation, latestConversation, SignedOut } from "../net/fetch_conversation.js";

/**
 * @typedef {Readonly<{
 *   url: string,
 *   agent: string,
 *   id: string,
 *   root: import("../net/csrf_token.js").Root,
 *   onFound: (id: string) => void,
 *   onNone: () => void,
 *   onLost: (status: "reconnecting"|"signed_out") => void,
 *   onRefused: (problem: string) => void,
 * }>} Wishes `id`: what a new one is to have; `onLost`: the server was not reached, and is asked
 *   again. Where nobody is signed in, that is once the browser is back.
 */

export class ConversationOfAgent {
  #wishes;
  #again;
  /** Asks the server, and returns what is to be done with its answer. @type {(() => Promise<() => void>)|null} */
  #question = null;
  #isAsking = false;
  #isClosed = false;

  /** @param {Wishes} wishes */
  constructor(wishes) {
    this.#wishes = wishes;
    this.#again = new Backoff(() => this.#try());
  }

  /** Look for the latest. */
  find() {
    const { url, agent, onFound, onNone } = this.#wishes;
    return this.#ask(async () => {
      const id = await latestConversation(url, agent);
      return id === null ? onNone : () => onFound(id);
    });
  }

  /** Make a new one, once, however often it is asked for meanwhile; not while the latest is looked for. */
  create() {
    const { url, agent, id, root, onFound, onRefused } = this.#wishes;
    return this.#ask(async () => {
      const made = await createConversation(url, agent, id, root);
      return "id" in made ? () => onFound(made.id) : () => onRefused(made.problem);
    });
  }

  /** The browser is back: the server may be, too, and somebody may have signed in again in another tab. */
  revive() {
    void this.#try();
  }

  close() {
    this.#isClosed = true;
  }

  /** @param {() => Promise<() => void>} question */
  async #ask(question) {
    if (this.#question) return;
    this.#question = question;
    await this.#try();
  }

  async #try() {
    if (this.#isClosed || this.#isAsking || !this.#question) return;
    this.#isAsking = true;
    const tell = await this.#question().then(
      (answer) => () => {
        this.#question = null;
        answer();
      },
      (problem) => () => this.#lose(problem instanceof SignedOut),
    );
    this.#isAsking = false;
    if (!this.#isClosed) tell();
  }

  /** @param {boolean} isSignedOut */
  #lose(isSignedOut) {
    this.#wishes.onLost(isSignedOut ? "signed_out" : "reconnecting");
    if (!isSignedOut) this.#again.plan();
  }
}
