/** What a person does with a conversation as a whole, by the HTTP API. */

import { request } from "./request.js";

/** The page's token against requests of other sites. */
const token = () => /** @type {HTMLInputElement} */ (document.querySelector("[name=csrfmiddlewaretoken]")).value;

/** @param {string} url @param {string} method @param {object} [body] @returns {Promise<string>} why it was refused; empty = it was done */
async function ask(url, method, body) {
  const headers = { accept: "application/json", "content-type": "application/json", "x-csrftoken": token() };
  const answer = await request(url, { method, headers, ...(body ? { body: JSON.stringify(body) } : {}) }).catch(
    () => null,
  );
  if (answer?.ok) return "";
  const refused = await answer?.json().catch(() => null);
  return refused?.error ?? "offline";
}

/** @param {string} url that of the conversation in the API @param {{title?: string, is_pinned?: boolean, agent?: string}} changes */
export const editConversation = (url, changes) => ask(url, "PATCH", changes);

/** @param {string} url that of the conversation in the API */
export const deleteConversation = (url) => ask(url, "DELETE");
