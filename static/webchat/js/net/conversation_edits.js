/** What a person does with a conversation as a whole, by the HTTP API. */

import { requestChange } from "./csrf_token.js";

/** @param {string} url @param {string} method @param {object} [body] @returns {Promise<string>} why it was refused; empty = it was done */
async function ask(url, method, body) {
  const answer = await requestChange(document, url, method, body).catch(() => null);
  if (answer?.ok) return "";
  const refused = await answer?.json().catch(() => null);
  return refused?.error ?? "offline";
}

/** @param {string} url that of the conversation in the API @param {{title?: string, is_pinned?: boolean, agent?: string}} changes */
export const editConversation = (url, changes) => ask(url, "PATCH", changes);

/** @param {string} url that of the conversation in the API */
export const deleteConversation = (url) => ask(url, "DELETE");
