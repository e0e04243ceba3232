/** Requests to the server by HTTP. */

const TIMEOUT_MS = 60_000;

/**
 * Like `fetch`, but a server that never answers is as one that was not reached: nothing on the page waits for ever.
 * @param {string|URL} url
 * @param {RequestInit} [options]
 * @param {number} [timeoutMs]
 * @returns {Promise<Response>}
 */
export function request(url, options = {}, timeoutMs = TIMEOUT_MS) {
  return fetch(url, { ...options, signal: AbortSignal.timeout(timeoutMs) });
}
