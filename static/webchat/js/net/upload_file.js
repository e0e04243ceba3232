/** Uploads a file and tells how far it is; only an `XMLHttpRequest` knows that. */

/** @typedef {import("./wire.js").AttachmentContent} Attachment */
/** @typedef {Readonly<{attachment: Attachment|null, problem: string}>} Uploaded `problem` is a sentence of the server's; empty = it was not reached. */

/** @typedef {Readonly<{token: string, onProgress: (share: number) => void, signal: AbortSignal}>} How `token`: the page's, against requests of other sites. */

/** @param {string} url @param {File} file @param {How} how @returns {Promise<Uploaded>} */
export function uploadFile(url, file, { token, onProgress, signal }) {
  const request = new XMLHttpRequest();
  request.open("POST", `${url}?name=${encodeURIComponent(file.name)}`);
  request.setRequestHeader("accept", "application/json");
  request.setRequestHeader("content-type", "application/octet-stream");
  request.setRequestHeader("x-csrftoken", token);
  request.upload.addEventListener("progress", ({ loaded, total }) => onProgress(total ? loaded / total : 0));
  signal.addEventListener("abort", () => request.abort(), { once: true });
  return new Promise((resolve) => {
    request.addEventListener("loadend", () => resolve(answerOf(request)));
    request.send(file);
  });
}

/** Take back a file that no message has. @param {string} url that of the file @param {string} token */
export const discardFile = (url, token) =>
  fetch(url, { method: "DELETE", headers: { "x-csrftoken": token } }).catch(() => null);

/** @param {XMLHttpRequest} request @returns {Uploaded} */
function answerOf(request) {
  try {
    const body = JSON.parse(request.responseText);
    return request.status === 201 ? { attachment: body, problem: "" } : { attachment: null, problem: body.error ?? "" };
  } catch {
    return { attachment: null, problem: "" };
  }
}
