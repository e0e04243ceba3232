/** Conversations as a whole, by the HTTP API: the latest with an agent, and a new one. */

import { request } from "./request.js";

/** @param {string} url that of conversations in the API @param {string} agent empty = the default one @returns {Promise<string|null>} its id; null where there is none */
export async function latestConversation(url, agent) {
  const answer = await request(`${url}?${new URLSearchParams({ agent })}`, { headers: { accept: "application/json" } });
  if (!answer.ok) throw new Error(`Conversations: ${answer.status}`);
  /** @type {{conversations: Array<{conversation_id: string, updated_at: string}>}} */
  const { conversations } = await answer.json();
  const [latest] = conversations.sort((one, other) => Date.parse(other.updated_at) - Date.parse(one.updated_at));
  return latest?.conversation_id ?? null; // pinned ones come first, which need not be the latest
}

/**
 * Throws where the server was not reached.
 * @param {string} url that of conversations in the API
 * @param {string} agent
 * @param {string} id what it is to have; asked again with the same one, it is the same conversation
 * @param {string} token the page's token against requests of other sites
 * @returns {Promise<{id: string}|{problem: string}>} the new conversation, or why there is none
 */
export async function createConversation(url, agent, id, token) {
  const headers = { accept: "application/json", "content-type": "application/json", "x-csrftoken": token };
  const body = JSON.stringify({ agent, conversation_id: id });
  const answer = await request(url, { method: "POST", headers, body });
  if (answer.status >= 500) throw new Error(`New conversation: ${answer.status}`);
  const told = await answer.json();
  return answer.ok ? { id: told.conversation_id } : { problem: told.error };
}
