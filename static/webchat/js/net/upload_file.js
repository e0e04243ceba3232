/** Uploads a file and tells how far it is; only an `XMLHttpRequest` knows that. */

import { request } from "./request.js";

/** @typedef {import("./wire.js").AttachmentContent} Attachment */
/** @typedef {Readonly<{attachment: Attachment|null, problem: string}>} Uploaded `problem` is a sentence of the server's; empty = it was not reached. */

/** @typedef {Readonly<{token: string, onProgress: (share: number) => void, signal: AbortSignal}>} How `token`: the page's, against requests of other sites. */

/** @param {string} url @param {File} file @param {How} how @returns {Promise<Uploaded>} */
export function uploadFile(url, file, { token, onProgress, signal }) {
  const upload = new XMLHttpRequest();
  upload.open("POST", `${url}?name=${encodeURIComponent(file.name)}`);
  upload.setRequestHeader("accept", "application/json");
  upload.setRequestHeader("content-type", "application/octet-stream");
  upload.setRequestHeader("x-csrftoken", token);
  upload.upload.addEventListener("progress", ({ loaded, total }) => onProgress(total ? loaded / total : 0));
  signal.addEventListener("abort", () => upload.abort(), { once: true });
  return new Promise((resolve) => {
    upload.addEventListener("loadend", () => resolve(answerOf(upload)));
    upload.send(file);
  });
}

/** Take back a file that no message has. @param {string} url that of the file @param {string} token */
export const discardFile = (url, token) =>
  request(url, { method: "DELETE", headers: { "x-csrftoken": token } }).catch(() => null);

/** @param {XMLHttpRequest} upload @returns {Uploaded} */
function answerOf(upload) {
  try {
    const body = JSON.parse(upload.responseText);
    return upload.status === 201 ? { attachment: body, problem: "" } : { attachment: null, problem: body.error ?? "" };
  } catch {
    return { attachment: null, problem: "" };
  }
}
