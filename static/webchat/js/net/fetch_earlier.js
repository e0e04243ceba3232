/** Earlier messages, asked for a page at a time. */

/** @typedef {import("../state/types.js").EarlierMessages} EarlierMessages */

/** @param {string} url @param {number} before the position of the first message that is shown @returns {Promise<EarlierMessages>} */
export async function fetchEarlier(url, before) {
  const answer = await fetch(`${url}?before=${before}`, { headers: { accept: "application/json" } });
  if (!answer.ok) throw new Error(`Earlier messages: ${answer.status}`);
  return answer.json();
}
