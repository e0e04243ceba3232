/** The files of a message: an image as it is, anything else as a chip that saves it. */

import { element, icon } from "./dom.js";

/** @typedef {import("../net/wire.js").AttachmentContent} Attachment */
/** @typedef {import("./i18n.js").I18n} I18n */

const KB = 1_000;
const MB = 1_000_000;

/** @param {ReadonlyArray<Attachment>} attachments @param {I18n} i18n @param {string} pattern the address of a file, with FILE for its id @param {string} [label] */
export function attachmentList(attachments, i18n, pattern, label = i18n.text("attached_files")) {
  const list = element("ul", { class: "attachments", "aria-label": label });
  for (const each of attachments) list.append(element("li", {}, fileNode(each, i18n, pattern)));
  return list;
}

/** The address of a file. @param {string} pattern @param {Attachment} attachment */
export const urlOf = (pattern, { attachment_id: id }) => pattern.replace("FILE", encodeURIComponent(id));

/** @param {Attachment} attachment @param {I18n} i18n @param {string} pattern */
function fileNode(attachment, i18n, pattern) {
  const { name, type, width, height } = attachment;
  const href = urlOf(pattern, attachment);
  if (type === "image") {
    const size = { width: width ? String(width) : undefined, height: height ? String(height) : undefined };
    const image = element("img", { class: "attachment-image", src: href, alt: name, loading: "lazy", ...size });
    return element("a", { class: "attachment-link", href, target: "_blank", rel: "noopener" }, image);
  }
  const facts = element("span", { class: "attachment-facts", text: factsOf(attachment, i18n) });
  const words = element("span", { class: "attachment-name", text: name, dir: "auto" });
  return element("a", { class: "attachment-chip", href, download: name }, icon("file"), words, facts);
}

/** What a file is and how much. @param {Attachment} attachment @param {I18n} i18n */
function factsOf({ media_type: type, size }, i18n) {
  const kind = (type.split("/").at(-1) ?? "").toUpperCase().replace("PLAIN", i18n.text("file_text"));
  const much = size < MB ? `${Math.max(1, Math.round(size / KB))} kB` : `${i18n.number(size / MB)} MB`;
  return `${kind} · ${much}`;
}
