/** The whole result of a call, of which the protocol carries the beginning. */

import { request } from "./request.js";

/** @param {string} pattern the address of results, with TURN and TOOL for the ids @param {string} turnId @param {string} toolId */
export const resultAddress = (pattern, turnId, toolId) =>
  pattern.replace("TURN", encodeURIComponent(turnId)).replace("TOOL", encodeURIComponent(toolId));

/** @param {string} pattern the address, with TURN and TOOL for the ids @param {string} turnId @param {string} toolId @returns {Promise<string|null>} null where it cannot be had */
export async function fetchResult(pattern, turnId, toolId) {
  try {
    const answer = await request(resultAddress(pattern, turnId, toolId), { headers: { accept: "text/plain" } });
    return answer.ok ? await answer.text() : null;
  } catch {
    return null;
  }
}
