/** The page's requests to the HTTP API of the server. */

/** @typedef {import("../view/dom.js").Root} Root */
/** @typedef {import("../state/types.js").EarlierMessages} EarlierMessages */
/** @typedef {import("./wire.js").AttachmentContent} Attachment */

const TIMEOUT_MS = 60_000;

/**
 * Fetch a URL with a timeout, so that the page does not wait forever for a server that does not respond.
 * @param {string|URL} url
 * @param {RequestInit} [options]
 * @param {number} [timeoutMs]
 * @returns {Promise<Response>}
 */
export function request(url, options = {}, timeoutMs = TIMEOUT_MS) {
  return fetch(url, { ...options, signal: AbortSignal.timeout(timeoutMs) });
}

const FIELD = "[name=csrfmiddlewaretoken]";
const PERSON = "#chat[data-user], #conversations[data-user]";

/** @param {Root} root */
const tokenIn = (root) => root.querySelector(FIELD)?.getAttribute("value") ?? "";

/** @param {{code?: string}|null} body the server's response */
const isTokenOld = (body) => body?.code === "csrf_failed";

/**
 * Send a request with an unsafe method and the CSRF token. If the token is outdated, fetch the current one and retry
 * once.
 * @param {Root} root
 * @param {string} url
 * @param {string} method
 * @param {object} [body]
 */
async function requestChange(root, url, method, body) {
  const headers = { accept: "application/json", "content-type": "application/json" };
  const ask = () =>
    request(url, {
      method,
      headers: { ...headers, "x-csrftoken": tokenIn(root) },
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
  const answer = await ask();
  if (answer.status !== 403) return answer;
  const problem = await answer
    .clone()
    .json()
    .catch(() => null);
  return isTokenOld(problem) && (await renewToken(root)) ? ask() : answer;
}

/**
 * Fetch the page again to get the current CSRF token. A token of another user is ignored, unless `isForAnybody` is set.
 * @param {Root} root
 * @param {{isForAnybody?: boolean}} [how]
 * @returns {Promise<boolean>} whether the token was renewed
 */
export async function renewToken(root, { isForAnybody = false } = {}) {
  const answer = request(location.href, { cache: "no-store" });
  const html = await answer.then((page) => page.text()).catch(() => "");
  const page = new DOMParser().parseFromString(html, "text/html");
  const parts = [page, ...Array.from(page.querySelectorAll("template"), ({ content }) => content)];
  const find = (/** @type {string} */ selector) => parts.map((part) => part.querySelector(selector)).find(Boolean);
  const token = find(FIELD)?.getAttribute("value");
  const isSame = find(PERSON)?.getAttribute("data-user") === root.querySelector(PERSON)?.getAttribute("data-user");
  if (!token || !(isSame || isForAnybody)) return false;
  for (const field of root.querySelectorAll(FIELD)) field.setAttribute("value", token);
  return true;
}

/**
 * @param {string} url
 * @param {string} method
 * @param {object} [body]
 * @returns {Promise<string>} the reason for the refusal, or "" if the request was accepted
 */
async function ask(url, method, body) {
  const answer = await requestChange(document, url, method, body).catch(() => null);
  if (answer?.ok) return "";
  const refused = await answer?.json().catch(() => null);
  return refused?.error ?? "offline";
}

/** @param {string} url the conversation's URL in the API @param {{title?: string, is_pinned?: boolean, agent?: string}} changes */
export const editConversation = (url, changes) => ask(url, "PATCH", changes);

/** @param {string} url the conversation's URL in the API */
export const deleteConversation = (url) => ask(url, "DELETE");

/** Thrown if the user is no longer signed in. */
export class SignedOut extends Error {}

/**
 * @param {string} url the conversations' URL in the API
 * @param {string} agent the agent's name, or "" for the default agent
 * @returns {Promise<string|null>} the id of the latest conversation, or null if there is none
 */
export async function latestConversation(url, agent) {
  const answer = await request(`${url}?${new URLSearchParams({ agent })}`, { headers: { accept: "application/json" } });
  if (answer.status === 401) throw new SignedOut();
  if (!answer.ok) throw new Error(`Conversations: ${answer.status}`);
  /** @type {{conversations: Array<{conversation_id: string, updated_at: string}>}} */
  const { conversations } = await answer.json();
  const [latest] = conversations.sort((one, other) => Date.parse(other.updated_at) - Date.parse(one.updated_at));
  return latest?.conversation_id ?? null; // sorted, because pinned conversations come first in the response
}

/**
 * Create a conversation. Throws if the server is unreachable or the user is not signed in.
 * @param {string} url the conversations' URL in the API
 * @param {string} agent
 * @param {string} id the id for the conversation; a retry with the same id creates no second conversation
 * @param {Root} root
 * @returns {Promise<{id: string}|{problem: string}>} the new conversation, or the reason why it was not created
 */
export async function createConversation(url, agent, id, root) {
  const answer = await requestChange(root, url, "POST", { agent, conversation_id: id });
  if (answer.status === 401) throw new SignedOut();
  if (answer.status >= 500) throw new Error(`New conversation: ${answer.status}`);
  const body = await answer.json();
  return answer.ok ? { id: body.conversation_id } : { problem: body.error };
}

/** @param {string} url @param {number} before the position of the first shown message @returns {Promise<EarlierMessages>} */
export async function fetchEarlier(url, before) {
  const answer = await request(`${url}?before=${before}`, { headers: { accept: "application/json" } });
  if (!answer.ok) throw new Error(`Earlier messages: ${answer.status}`);
  return answer.json();
}

/** @param {string} pattern the address of results, with TURN and TOOL for the ids @param {string} turnId @param {string} toolId */
export const resultAddress = (pattern, turnId, toolId) =>
  pattern.replace("TURN", encodeURIComponent(turnId)).replace("TOOL", encodeURIComponent(toolId));

/**
 * @param {string} pattern the address, with TURN and TOOL for the ids
 * @param {string} turnId
 * @param {string} toolId
 * @returns {Promise<string|null>} the whole result, or null if it cannot be fetched
 */
export async function fetchResult(pattern, turnId, toolId) {
  try {
    const answer = await request(resultAddress(pattern, turnId, toolId), { headers: { accept: "text/plain" } });
    return answer.ok ? await answer.text() : null;
  } catch {
    return null;
  }
}

/**
 * @typedef {Readonly<{attachment: Attachment|null, problem: string, code: string}>} Uploaded `problem` is a sentence of
 * the server, or "" if the server was unreachable.
 */
/** @typedef {Readonly<{root: Root, onProgress: (share: number) => void, signal: AbortSignal}>} How */

/** @param {string} url @param {File} file @param {How} how @returns {Promise<Uploaded>} */
export async function uploadFile(url, file, how) {
  const uploaded = await upload(url, file, how);
  return isTokenOld(uploaded) && (await renewToken(how.root)) ? upload(url, file, how) : uploaded;
}

/** @param {string} url @param {File} file @param {How} how @returns {Promise<Uploaded>} */
function upload(url, file, { root, onProgress, signal }) {
  const upload = new XMLHttpRequest();
  upload.open("POST", `${url}?name=${encodeURIComponent(file.name)}`);
  upload.setRequestHeader("accept", "application/json");
  upload.setRequestHeader("content-type", "application/octet-stream");
  upload.setRequestHeader("x-csrftoken", tokenIn(root));
  upload.upload.addEventListener("progress", ({ loaded, total }) => onProgress(total ? loaded / total : 0));
  signal.addEventListener("abort", () => upload.abort(), { once: true });
  return new Promise((resolve) => {
    upload.addEventListener("loadend", () => resolve(answerOf(upload)));
    upload.send(file);
  });
}

/** Delete an uploaded file that is not part of a message. @param {string} url the file's URL @param {Root} root */
export const discardFile = (url, root) => requestChange(root, url, "DELETE").catch(() => null);

/** @param {XMLHttpRequest} upload @returns {Uploaded} */
function answerOf(upload) {
  try {
    const body = JSON.parse(upload.responseText);
    const { error: problem = "", code = "" } = body;
    return upload.status === 201 ? { attachment: body, problem, code } : { attachment: null, problem, code };
  } catch {
    return { attachment: null, problem: "", code: "" };
  }
}
