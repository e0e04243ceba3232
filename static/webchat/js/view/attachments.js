/** Shows the files of messages, and the tray with the files for the next message. */

import { discardFile, uploadFile } from "../net/api.js";
import { tabStorage } from "../state/storage.js";
import { byId, element, icon, setText } from "./dom.js";

/** @typedef {import("../net/wire.js").AttachmentContent} Attachment */
/** @typedef {import("./i18n.js").I18n} I18n */

const KB = 1_000;
const MB = 1_000_000;

/**
 * Return a list with the files of a message. Images are shown, and other files are chips that download them.
 * @param {ReadonlyArray<Attachment>} attachments
 * @param {I18n} i18n
 * @param {string} pattern the URL of a file, with FILE for its id
 * @param {string} [label]
 */
export function attachmentList(attachments, i18n, pattern, label = i18n.text("attached_files")) {
  const list = element("ul", { class: "attachments", "aria-label": label });
  for (const each of attachments) list.append(element("li", {}, fileNode(each, i18n, pattern)));
  return list;
}

/** Return the URL of a file. @param {string} pattern @param {Attachment} attachment */
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

/** Return the type and size of a file. @param {Attachment} attachment @param {I18n} i18n */
function factsOf({ media_type: type, size }, i18n) {
  const kind = (type.split("/").at(-1) ?? "").toUpperCase().replace("PLAIN", i18n.text("file_text"));
  const much = size < MB ? `${Math.max(1, Math.round(size / KB))} kB` : `${i18n.number(size / MB)} MB`;
  return `${kind} · ${much}`;
}

/**
 * @typedef {Readonly<{
 *   i18n: import("./i18n.js").I18n,
 *   announcer: import("./announcer.js").Announcer,
 *   storageKey: string,
 *   onChanged: () => void,
 *   signal: AbortSignal,
 * }>} TrayParts
 */
/** @typedef {{chip: HTMLElement, attachment: Attachment|null, isBusy: boolean, aborter: AbortController}} Held */

/**
 * The tray with the files for the next message. Files can be chosen, dropped or pasted, and are uploaded immediately.
 */
export class AttachmentTray {
  #root;
  #parts;
  #tray;
  #list;
  #button;
  #url;
  #pattern;
  #maxBytes;
  #maxCount;
  /** @type {Set<Held>} */
  #files = new Set();

  /** @param {import("./dom.js").Root} root @param {TrayParts} parts */
  constructor(root, parts) {
    this.#root = root;
    this.#parts = parts;
    this.#tray = byId(root, "attach-tray", HTMLElement);
    this.#list = byId(root, "attach-list", HTMLElement);
    this.#button = byId(root, "attach", HTMLButtonElement);
    const input = byId(root, "attach-input", HTMLInputElement);
    const { url = "", pattern = "", maxBytes, maxCount } = this.#list.dataset;
    this.#url = url;
    this.#pattern = pattern;
    this.#maxBytes = Number(maxBytes);
    this.#maxCount = Number(maxCount);
    if (this.#button.hidden || this.#button.form?.hidden) return;
    const { signal } = parts;
    this.#button.addEventListener("click", () => input.click(), { signal });
    const choose = () => {
      this.#add([...(input.files ?? [])]);
      input.value = "";
    };
    input.addEventListener("change", choose, { signal });
    this.#takeDropped(byId(root, "chat", HTMLElement));
    byId(root, "composer-input", HTMLElement).addEventListener("paste", (event) => this.#pasted(event), { signal });
    this.restore(this.#stored());
  }

  /** The URL pattern of a file, with FILE in place of its id. */
  get pattern() {
    return this.#pattern;
  }

  /** The uploaded files. @returns {Array<Attachment>} */
  get ready() {
    return [...this.#files].flatMap(({ attachment }) => attachment ?? []);
  }

  get isBusy() {
    return [...this.#files].some((held) => held.isBusy);
  }

  get isEmpty() {
    return this.ready.length === 0;
  }

  /** Whether the tray contains a file or a file is being uploaded. */
  get isInUse() {
    return !this.isEmpty || this.isBusy;
  }

  /** Put the files of an unsent message back into the tray. @param {ReadonlyArray<Attachment>} attachments */
  restore(attachments) {
    const ids = new Set(this.ready.map(({ attachment_id: id }) => id));
    for (const attachment of attachments) {
      if (ids.has(attachment.attachment_id)) continue;
      const held = this.#hold(attachment.name);
      held.attachment = attachment;
    }
    this.#changed();
  }

  /** Empty the tray, because a message with its files was sent. */
  clear() {
    for (const { chip } of this.#files) chip.remove();
    this.#files.clear();
    this.#changed();
  }

  /** @param {HTMLElement} target */
  #takeDropped(target) {
    const { signal } = this.#parts;
    const hasFiles = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes("Files") ?? false;
    const mark = (/** @type {DragEvent} */ event, /** @type {boolean} */ isOver) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      target.toggleAttribute("data-drop", isOver);
    };
    target.addEventListener("dragover", (event) => mark(event, true), { signal });
    target.addEventListener("dragleave", (event) => event.target === target && mark(event, false), { signal });
    target.addEventListener(
      "drop",
      (event) => {
        mark(event, false);
        if (hasFiles(event)) this.#add([...(event.dataTransfer?.files ?? [])]);
      },
      { signal },
    );
  }

  /** Attach pasted files. If the clipboard also contains text, paste only the text. @param {ClipboardEvent} event */
  #pasted(event) {
    const files = [...(event.clipboardData?.files ?? [])];
    if (files.length === 0 || event.clipboardData?.types.includes("text/plain")) return;
    event.preventDefault();
    this.#add(files);
  }

  /** @param {Array<File>} files */
  #add(files) {
    const { i18n, announcer } = this.#parts;
    const room = this.#maxCount - this.#files.size;
    if (files.length > room) announcer.say({ text: i18n.count("attach_too_many", this.#maxCount), urgent: true });
    for (const file of files.slice(0, Math.max(room, 0))) void this.#upload(file);
  }

  /** @param {File} file */
  async #upload(file) {
    const { i18n, announcer, signal } = this.#parts;
    const held = this.#hold(file.name);
    if (file.size > this.#maxBytes) {
      this.#fail(held, file.name, i18n.text("attach_too_large", { limit: this.#maxBytes / 1_000_000 }));
      return;
    }
    held.isBusy = true;
    const bar = element("progress", { max: "1", "aria-label": i18n.text("attach_uploading", { name: file.name }) });
    held.chip.querySelector("button")?.before(bar);
    this.#changed();
    const stopped = AbortSignal.any([held.aborter.signal, signal]);
    const onProgress = (/** @type {number} */ share) => {
      bar.value = share;
    };
    const { attachment, problem } = await uploadFile(this.#url, file, {
      root: this.#root,
      onProgress,
      signal: stopped,
    });
    held.isBusy = false;
    bar.remove();
    if (!this.#files.has(held)) {
      if (attachment) void discardFile(urlOf(this.#pattern, attachment), this.#root);
      return;
    }
    if (attachment === null) {
      this.#fail(held, file.name, problem || i18n.text("attach_unreachable"));
      return;
    }
    held.attachment = attachment;
    setText(/** @type {Element} */ (held.chip.querySelector(".attachment-name")), attachment.name);
    announcer.say({ text: i18n.text("attach_done", { name: attachment.name }), urgent: false });
    this.#changed();
  }

  /** @param {Held} held @param {string} name @param {string} reason */
  #fail(held, name, reason) {
    const { i18n, announcer } = this.#parts;
    held.chip.setAttribute("data-failed", "");
    held.chip.querySelector("button")?.before(element("span", { class: "attachment-problem", text: reason }));
    announcer.say({ text: i18n.text("attach_failed", { name, reason }), urgent: true });
    this.#changed();
  }

  /** @param {string} name @returns {Held} */
  #hold(name) {
    const label = this.#parts.i18n.text("attach_remove", { name });
    const remove = element("button", { class: "button-icon", type: "button", "aria-label": label });
    remove.append(icon("cross"));
    const words = element("span", { class: "attachment-name", text: name, dir: "auto" });
    const chip = element("li", { class: "attachment-chip" }, icon("file"), words, remove);
    /** @type {Held} */
    const held = { chip, attachment: null, isBusy: false, aborter: new AbortController() };
    remove.addEventListener("click", () => this.#remove(held));
    this.#list.append(chip);
    this.#files.add(held);
    return held;
  }

  /** @param {Held} held */
  #remove(held) {
    this.#files.delete(held);
    held.chip.remove();
    held.aborter.abort();
    if (held.attachment) void discardFile(urlOf(this.#pattern, held.attachment), this.#root);
    this.#button.focus();
    this.#changed();
  }

  #changed() {
    const { storageKey, onChanged } = this.#parts;
    this.#tray.hidden = this.#files.size === 0;
    tabStorage.setItem(storageKey, JSON.stringify(this.ready));
    onChanged();
  }

  /** @returns {Array<Attachment>} */
  #stored() {
    try {
      const attachments = JSON.parse(tabStorage.getItem(this.#parts.storageKey) ?? "[]");
      return Array.isArray(attachments) ? attachments : [];
    } catch {
      return [];
    }
  }
}
