/** Uploads a file and tells how far it is; only an `XMLHttpRequest` knows that. */

import { isTokenOld, renewToken, requestChange, tokenIn } from "./csrf_token.js";

/** @typedef {import("./wire.js").AttachmentContent} Attachment */
/** @typedef {import("./csrf_token.js").Root} Root */
/** @typedef {Readonly<{attachment: Attachment|null, problem: string, code: string}>} Uploaded `problem` is a sentence of the server's; empty = it was not reached. */
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

/** Take back a file that no message has. @param {string} url that of the file @param {Root} root */
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
