/**
 * Creates and finds elements. HTML from people and agents enters the page through only one function, `sanitisedNodes`.
 */

const SVG = "http://www.w3.org/2000/svg";

/** Stroked paths on a 16 × 16 grid. @type {Record<string, string>} */
const ICONS = {
  check: "M3 8.5 6.5 12 13 4.5",
  cross: "M4 4l8 8M12 4l-8 8",
  clock: "M8 1.75a6.25 6.25 0 1 0 0 12.5a6.25 6.25 0 1 0 0-12.5M8 4.5V8l2.5 1.75",
  square: "M4 4h8v8H4z",
  warning: "M8 2 1.75 13.25h12.5zM8 6.5v3M8 11.4v.1",
  link: "M6.5 9.5l3-3M7 4.5l1-1a2.8 2.8 0 0 1 4 4l-1 1M9 11.5l-1 1a2.8 2.8 0 0 1-4-4l1-1",
  question: "M5.8 6a2.2 2.2 0 1 1 3.2 2c-.7.4-1 .8-1 1.6M8 12v.1",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  pencil: "M3 13l.7-3L10.8 2.9l2.3 2.3L6 12.3zM9.3 4.4l2.3 2.3",
  file: "M4 1.75h5l3 3v9.5H4zM9 1.75v3h3",
  chevron: "M6 4l4 4-4 4",
};

/**
 * @typedef {Readonly<{i18n: import("./i18n.js").I18n, viewer: string, now: number, frozenAt: number|null,
 *   pageOf: (conversationId: string) => string, fileUrl?: string, resultUrl?: string}>} View The values with which
 *   all parts draw themselves. `fileUrl` is the URL pattern of an attachment, with FILE for its id, and `resultUrl` is that
 *   of a result, with TURN and TOOL for the ids.
 */

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {{class?: string, text?: string} & Record<string, string|undefined>} [attributes]
 * @param {...Node} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined) continue;
    if (name === "text") node.textContent = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** @param {string} name @returns {SVGSVGElement} */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name] ?? "");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("aria-hidden", "true");
  svg.append(path);
  return svg;
}

/**
 * Set the text of an element only if it differs, so that selections and screen readers keep their position.
 * @param {Element} target
 * @param {string} text
 */
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/**
 * Parse HTML that the server has rendered and sanitised. This is the only function through which HTML from people and
 * agents enters the page. Pass only the `html` of a finished message, of finished blocks or of a report. Scripts that
 * are parsed this way never run. Links open in a new tab, so that a click does not leave a running turn.
 * @param {string} html
 * @returns {Array<Node>}
 */
export function sanitisedNodes(html) {
  const parsed = new DOMParser().parseFromString(html, "text/html");
  for (const link of parsed.querySelectorAll("a[href]")) {
    link.setAttribute("target", "_blank");
    link.setAttribute("rel", "noopener noreferrer");
  }
  for (const list of parsed.querySelectorAll("ul, ol, table")) list.setAttribute("dir", "auto"); // so that list markers and columns follow the text's direction
  for (const wide of parsed.querySelectorAll("pre, table")) wide.setAttribute("tabindex", "0"); // so that they can be scrolled with the keyboard
  return [...parsed.body.childNodes];
}

/**
 * Parse the HTML of a page of this site, which the server renders from the same templates as the current page.
 * @param {string} html
 */
export const pageFrom = (html) => new DOMParser().parseFromString(html, "text/html");

/**
 * Place an element after another one, unless it is already there, because a move would lose its focus and scroll
 * position.
 * @param {Element} parent
 * @param {Element} node
 * @param {Element|null} previous
 */
export function placeAfter(parent, node, previous) {
  const next = previous ? previous.nextElementSibling : parent.firstElementChild;
  if (next !== node) parent.insertBefore(node, next);
}

/** The root of a chat: the document, or the shadow tree of its element in a host page. @typedef {Document|ShadowRoot} Root */

/**
 * Return the element with this id, which must exist in the template.
 * @template {HTMLElement} T
 * @param {Root} root
 * @param {string} id
 * @param {new () => T} type
 * @returns {T}
 */
export function byId(root, id, type) {
  const match = root.getElementById(id);
  if (!(match instanceof type)) throw new Error(`The chat has no #${id}.`);
  return match;
}

/**
 * Return the focused element in the same tree as this node. Seen from the document, a whole shadow tree is one element.
 * @param {Node} node
 * @returns {Element|null}
 */
export const focusedBeside = (node) => /** @type {Root} */ (node.getRootNode()).activeElement ?? null;

/**
 * Return whether a text selection begins in this element. In a shadow tree, the document's selection alone does not
 * show this.
 * @param {Element} element
 */
export function hasMarked(element) {
  const root = element.getRootNode();
  const own = /** @type {{getSelection?: () => Selection|null}} */ (root).getSelection; // only Chromium has this method in shadow trees
  const selection = own ? own.call(root) : document.getSelection();
  if (!selection || selection.rangeCount === 0) return false;
  const shadowRoots = root instanceof ShadowRoot ? [root] : [];
  const range = selection.getComposedRanges?.({ shadowRoots })[0] ?? selection.getRangeAt(0);
  return !range.collapsed && element.contains(range.startContainer);
}

/** Read JSON data from the template. @param {Root} root @param {string} id */
export const jsonIn = (root, id) => JSON.parse(byId(root, id, HTMLScriptElement).text);

/**
 * Return whether a key event belongs to an input method. In Safari, the final Enter comes after the composition, and
 * only its key code reveals that.
 * @param {KeyboardEvent} event
 */
export const isComposing = (event) => event.isComposing || event.keyCode === 229;

/**
 * Return the element to focus: the message field, or the transcript on a touch screen, where a focused field opens the
 * keyboard, and in a read-only chat.
 * @param {Root} root
 * @returns {HTMLElement}
 */
export function writingPlace(root) {
  const input = byId(root, "composer-input", HTMLTextAreaElement);
  const isOffered = matchMedia("(hover: hover)").matches && !input.form?.hidden;
  return isOffered ? input : byId(root, "transcript", HTMLElement);
}

/**
 * Draw changes. If they hide or remove the focused element, move the focus to the message field.
 * @param {Root} root
 * @param {() => void} draw
 */
export function drawWithFocus(root, draw) {
  const focused = root.activeElement;
  draw();
  if (focused === null || focused === document.body) return;
  const now = root.activeElement;
  const isLost = now === focused ? !focused.checkVisibility() : now === null || now === document.body;
  if (isLost) writingPlace(root).focus();
}
