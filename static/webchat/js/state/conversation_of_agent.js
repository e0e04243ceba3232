/** Which conversation a chat with an agent shows: the latest, or a new one, which the server has from its first message on. */

import { Backoff } from "../net/backoff.js";
import { createConversation, latestConversation } from "../net/fetch_conversation.js";

/**
 * @typedef {Readonly<{
 *   url: string,
 *   agent: string,
 *   id: string,
 *   token: string,
 *   onFound: (id: string) => void,
 *   onNone: () => void,
 *   onLost: () => void,
 *   onRefused: (problem: string) => void,
 * }>} Wishes `id`: what a new one is to have; `onLost`: the server was not reached, and is asked again.
 */

export class ConversationOfAgent {
  #wishes;
  #again;
  /** Asks the server, and returns what is to be done with its answer. @type {(() => Promise<() => void>)|null} */
  #question = null;
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
    const { url, agent, id, token, onFound, onRefused } = this.#wishes;
    return this.#ask(async () => {
      const made = await createConversation(url, agent, id, token);
      return "id" in made ? () => onFound(made.id) : () => onRefused(made.problem);
    });
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
    if (this.#isClosed || !this.#question) return;
    let tell;
    try {
      tell = await this.#question();
    } catch {
      tell = null;
    }
    if (this.#isClosed) return;
    if (tell) {
      this.#question = null;
      tell();
    } else {
      this.#wishes.onLost();
      this.#again.plan();
    }
  }
}
