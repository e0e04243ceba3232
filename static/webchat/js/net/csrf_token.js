/** The page's token against requests of other sites. A sign-in makes it old, also one in another tab. */

import { request } from "./request.js";

/** @typedef {import("../view/dom.js").Root} Root */

const FIELD = "[name=csrfmiddlewaretoken]";
const PERSON = "#chat[data-user], #conversations[data-user]";

/** @param {Root} root */
export const tokenIn = (root) => root.querySelector(FIELD)?.getAttribute("value") ?? "";

/** @param {{code?: string}|null} told what the server has answered */
export const isTokenOld = (told) => told?.code === "csrf_failed";

/**
 * Like `request`, for what changes something. With a token that is too old it is asked once more, with that of now.
 * @param {Root} root
 * @param {string} url
 * @param {string} method
 * @param {object} [body]
 */
export async function requestChange(root, url, method, body) {
  const headers = { accept: "application/json", "content-type": "application/json" };
  const ask = () =>
    request(url, {
      method,
      headers: { ...headers, "x-csrftoken": tokenIn(root) },
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
  const answer = await ask();
  if (answer.status !== 403) return answer;
  const told = await answer
    .clone()
    .json()
    .catch(() => null);
  return isTokenOld(told) && (await renewToken(root)) ? ask() : answer;
}

/**
 * Read the page again for the token of now. That of another person is not for what this page asks.
 * @param {Root} root
 * @param {{isForAnybody?: boolean}} [how]
 * @returns {Promise<boolean>} whether there is one
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
