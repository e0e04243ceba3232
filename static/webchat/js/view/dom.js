/** Making elements: text is always text, and what others have written enters the page as HTML in exactly one place. */

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
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {{class?: string, text?: string} & Record<string, string|undefined>} [attributes]
 * @param {...Node} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined) continue;
    if (name === "text") made.textContent = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
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

/** Change a text only where it differs: selections and screen readers keep their place. @param {Element} target @param {string} text */
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/**
 * The nodes of HTML that the server rendered and sanitised: the only way for what people and agents have written.
 * It may only be given the `html` of a finished message, of finished blocks or of a report. Scripts parsed this way never run.
 * Links open beside the conversation, so that a click does not leave a running turn.
 * @param {string} html
 * @returns {Array<Node>}
 */
export function sanitisedNodes(html) {
  const parsed = new DOMParser().parseFromString(html, "text/html");
  for (const link of parsed.querySelectorAll("a[href]")) {
    link.setAttribute("target", "_blank");
    link.setAttribute("rel", "noopener noreferrer");
  }
  for (const list of parsed.querySelectorAll("ul, ol, table")) list.setAttribute("dir", "auto"); // marks and columns, too
  for (const block of parsed.querySelectorAll("pre")) block.setAttribute("tabindex", "0"); // a wide one is scrolled by keys
  return [...parsed.body.childNodes];
}

/** A page of this site, fetched: from a template, as the one that is shown. @param {string} html */
export const pageFrom = (html) => new DOMParser().parseFromString(html, "text/html");

/** Moving an element takes its focus and its scroll place away, so only move what is out of place. @param {Element} parent @param {Element} node @param {Element|null} previous */
export function placeAfter(parent, node, previous) {
  const next = previous ? previous.nextElementSibling : parent.firstElementChild;
  if (next !== node) parent.insertBefore(node, next);
}

/** Where a chat stands: the page, or the shadow tree of an element in a page of somebody else. @typedef {Document|ShadowRoot} Root */

/** The element with this id, which the template guarantees. @template {HTMLElement} T @param {Root} root @param {string} id @param {new () => T} type @returns {T} */
export function byId(root, id, type) {
  const found = root.getElementById(id);
  if (!(found instanceof type)) throw new Error(`The chat has no #${id}.`);
  return found;
}

/** What has the focus where this node stands; seen from the page, a whole shadow tree is one element. @param {Node} node @returns {Element|null} */
export const focusedBeside = (node) => /** @type {Root} */ (node.getRootNode()).activeElement ?? null;

/** Whether text is marked that begins here. The page's own selection says nothing of a shadow tree. @param {Element} element */
export function hasMarked(element) {
  const root = element.getRootNode();
  const own = /** @type {{getSelection?: () => Selection|null}} */ (root).getSelection; // of a shadow tree in Chromium only
  const selection = own ? own.call(root) : document.getSelection();
  if (!selection || selection.rangeCount === 0) return false;
  const shadowRoots = root instanceof ShadowRoot ? [root] : [];
  const range = selection.getComposedRanges?.({ shadowRoots })[0] ?? selection.getRangeAt(0);
  return !range.collapsed && element.contains(range.startContainer);
}

/** What the template has put there for the scripts. @param {Root} root @param {string} id */
export const jsonIn = (root, id) => JSON.parse(byId(root, id, HTMLScriptElement).text);

/** Whether a key belongs to an input method. In Safari its last Enter comes after the composition: only the code says so. @param {KeyboardEvent} event */
export const isComposing = (event) => event.isComposing || event.keyCode === 229;

/** Where writing goes on; not on a touch screen, where that would open its keyboard, nor where nobody writes. @param {Root} root @returns {HTMLElement} */
export function writingPlace(root) {
  const input = byId(root, "composer-input", HTMLTextAreaElement);
  const isOffered = matchMedia("(hover: hover)").matches && !input.form?.hidden;
  return isOffered ? input : byId(root, "transcript", HTMLElement);
}

/** Draw what may hide the element that has the focus, or take it out: then writing goes on. @param {Root} root @param {() => void} draw */
export function drawWithFocus(root, draw) {
  const focused = root.activeElement;
  draw();
  if (focused === null || focused === document.body) return;
  const now = root.activeElement;
  const isLost = now === focused ? !focused.checkVisibility() : now === null || now === document.body;
  if (isLost) writingPlace(root).focus();
}
