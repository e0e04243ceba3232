/** Earlier messages, asked for a page at a time. */

import { request } from "./request.js";

/** @typedef {import("../state/types.js").EarlierMessages} EarlierMessages */

/** @param {string} url @param {number} before the position of the first message that is shown @returns {Promise<EarlierMessages>} */
export async function fetchEarlier(url, before) {
  const answer = await request(`${url}?before=${before}`, { headers: { accept: "application/json" } });
  if (!answer.ok) throw new Error(`Earlier messages: ${answer.status}`);
  return answer.json();
}
