/** Which conversation a chat with an agent shows: the latest, or a new one, which the server has from its first message on. */

import { Backoff } from "../net/backoff.js";
import { createConversation, latestConversation } from "../net/fetch_conversation.js";

/**
 * @typedef {Readonly<{
 *   url: string,
 *   agent: string,
 *   id?: string,
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
  /** @type {() => Promise<void>} */
  #step = async () => undefined;
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
    this.#step = async () => {
      const id = await latestConversation(url, agent);
      if (id === null) onNone();
      else onFound(id);
    };
    return this.#try();
  }

  /** Make a new one, once, however often it is asked for meanwhile. */
  create() {
    if (this.#isAsking) return undefined;
    this.#isAsking = true;
    const { url, agent, id = "", token, onFound, onRefused } = this.#wishes;
    this.#step = async () => {
      const made = await createConversation(url, agent, id, token);
      this.#isAsking = false;
      if ("id" in made) onFound(made.id);
      else onRefused(made.problem);
    };
    return this.#try();
  }

  close() {
    this.#isClosed = true;
  }

  async #try() {
    if (this.#isClosed) return;
    try {
      await this.#step();
    } catch {
      if (this.#isClosed) return;
      this.#wishes.onLost();
      this.#again.plan();
    }
  }
}
