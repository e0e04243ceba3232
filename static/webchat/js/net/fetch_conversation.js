/** Conversations as a whole, by the HTTP API: the latest with an agent, and a new one. */

import { requestChange } from "./csrf_token.js";
import { request } from "./request.js";

/** Nobody is signed in any more. */
export class SignedOut extends Error {}

/** @param {string} url that of conversations in the API @param {string} agent empty = the default one @returns {Promise<string|null>} its id; null where there is none */
export async function latestConversation(url, agent) {
  const answer = await request(`${url}?${new URLSearchParams({ agent })}`, { headers: { accept: "application/json" } });
  if (answer.status === 401) throw new SignedOut();
  if (!answer.ok) throw new Error(`Conversations: ${answer.status}`);
  /** @type {{conversations: Array<{conversation_id: string, updated_at: string}>}} */
  const { conversations } = await answer.json();
  const [latest] = conversations.sort((one, other) => Date.parse(other.updated_at) - Date.parse(one.updated_at));
  return latest?.conversation_id ?? null; // pinned ones come first, which need not be the latest
}

/**
 * Throws where the server was not reached, or where nobody is signed in.
 * @param {string} url that of conversations in the API
 * @param {string} agent
 * @param {string} id what it is to have; asked again with the same one, it is the same conversation
 * @param {import("./csrf_token.js").Root} root
 * @returns {Promise<{id: string}|{problem: string}>} the new conversation, or why there is none
 */
export async function createConversation(url, agent, id, root) {
  const answer = await requestChange(root, url, "POST", { agent, conversation_id: id });
  if (answer.status === 401) throw new SignedOut();
  if (answer.status >= 500) throw new Error(`New conversation: ${answer.status}`);
  const told = await answer.json();
  return answer.ok ? { id: told.conversation_id } : { problem: told.error };
}
