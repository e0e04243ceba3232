/** Shows a streaming answer: the finished blocks as HTML from the server, and then the block that is still growing. */

import { renderedLength } from "../state/turns.js";
import * as markdown from "../vendor/streaming-markdown.js";
import { addCopyButtons } from "./clipboard.js";
import { element, sanitisedNodes } from "./dom.js";

/** @typedef {import("../state/types.js").Block} Block */
/** @typedef {import("../state/types.js").TextItem} TextItem */
/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./i18n.js").I18n} I18n */

/**
 * The blocks and the growing block that each element shows.
 * @type {WeakMap<Element, {blocks: ReadonlyArray<Block>, growing: GrowingMarkdown}>}
 */
const shownIn = new WeakMap();

/** @param {I18n} i18n */
export function streamedText(i18n) {
  const growing = new GrowingMarkdown(i18n);
  const text = element("div", { class: "message-text prose" }, growing.element);
  shownIn.set(text, { blocks: [], growing });
  return text;
}

/**
 * Draw the streaming text. New blocks and text are appended, so that a selection is kept.
 * @param {Element} target
 * @param {Turn} turn
 * @param {I18n} i18n
 */
export function drawStreamedText(target, turn, i18n) {
  const shown = shownIn.get(target);
  if (!shown) return;
  const { growing } = shown;
  if (shown.blocks.at(-1) !== turn.blocks[shown.blocks.length - 1]) {
    target.replaceChildren(growing.element);
    shown.blocks = [];
  }
  for (const { html } of turn.blocks.slice(shown.blocks.length)) growing.element.before(...nodesOf(html, i18n));
  shown.blocks = turn.blocks;
  growing.show(turn.partial.slice(renderedLength(turn)));
}

/**
 * Show the whole text when its message is complete or lost. The part that is already shown is kept.
 * @param {Element} target
 * @param {Pick<TextItem, "html"|"unstored">} item
 * @param {I18n} i18n
 */
export function finishStreamedText(target, item, i18n) {
  const shown = shownIn.get(target);
  const html = (shown?.blocks ?? []).map((block) => block.html).join("");
  if (shown && item.html.startsWith(html)) {
    shown.growing.element.replaceWith(...answerNodes({ ...item, html: item.html.slice(html.length) }, i18n));
  } else target.replaceChildren(...answerNodes(item, i18n));
}

/**
 * Return the nodes of an answer. If its message was lost, they include the part that the server did not render.
 * @param {Pick<TextItem, "html"|"unstored">} item
 * @param {I18n} i18n
 */
export function answerNodes({ html, unstored }, i18n) {
  const nodes = nodesOf(html, i18n);
  if (!unstored?.trim()) return nodes;
  const growing = new GrowingMarkdown(i18n);
  growing.show(unstored);
  growing.end();
  return [...nodes, growing.element];
}

/** @param {string} html @param {I18n} i18n */
function nodesOf(html, i18n) {
  const part = element("div", {}, ...sanitisedNodes(html));
  addCopyButtons(part, i18n);
  return [...part.childNodes];
}

/** @typedef {HTMLElement|DocumentFragment} Parent */

const { Token, Attr } = markdown;

/** @type {ReadonlyMap<number, keyof HTMLElementTagNameMap>} */
const TAGS = new Map([
  [Token.Blockquote, "blockquote"],
  [Token.Paragraph, "p"],
  [Token.Heading_1, "h1"],
  [Token.Heading_2, "h2"],
  [Token.Heading_3, "h3"],
  [Token.Heading_4, "h4"],
  [Token.Heading_5, "h5"],
  [Token.Heading_6, "h6"],
  [Token.Code_Inline, "code"],
  [Token.Italic_Ast, "em"],
  [Token.Italic_Und, "em"],
  [Token.Strong_Ast, "strong"],
  [Token.Strong_Und, "strong"],
  [Token.Strike, "s"],
  [Token.Rule, "hr"],
  [Token.List_Unordered, "ul"],
  [Token.List_Ordered, "ol"],
  [Token.List_Item, "li"],
  [Token.Table, "table"],
  [Token.Table_Row, "tr"],
  [Token.Raw_URL, "span"],
  [Token.Link, "span"],
  [Token.Image, "span"],
]);
const DEEPEST = 32; // deeper levels become text, because thousands of nested elements crash some browsers
// The pattern excludes characters that change the direction of the text after them.
const SAFE = /^(?:https?:\/\/|mailto:)[^\s<>"\u200e\u200f\u202a-\u202e\u2066-\u2069]+$/i;
/** The tokens inside which the character that the parser holds back can be shown as text. */
const HOLDS_TEXT = new Set([...TAGS.keys(), Token.Code_Fence, Token.Code_Block, Token.Table_Cell, markdown.MAYBE_URL]);
const PLAIN = /^[\p{L}\p{N}.,;:?'"%/]$/u;
const PLAIN_IN_CODE = /^[^`\n]$/u;

/**
 * Renders the unfinished block with a third-party parser. Only tokens with a known tag become elements, and everything
 * else is text. When the block is finished, the server's HTML replaces it.
 */
class GrowingMarkdown {
  element = element("div", { class: "growing-text" });
  #i18n;
  #text = "";
  /** @type {Array<{token: number, node: HTMLElement, href: string}>} */
  #open = [];
  #parser = this.#newParser();
  /** The last character, which the parser still holds back. */
  #last = document.createTextNode("");

  /** @param {I18n} i18n */
  constructor(i18n) {
    this.#i18n = i18n;
  }

  /** @param {string} text the unfinished block */
  show(text) {
    this.#last.remove();
    if (!text.startsWith(this.#text)) {
      this.element.replaceChildren();
      this.#open = [];
      this.#text = "";
      this.#parser = this.#newParser();
    }
    markdown.parser_write(this.#parser, text.slice(this.#text.length));
    this.#text = text;
    this.element.hidden = text.trim() === "";
    const { token, pending } = this.#parser;
    const plain = token === Token.Code_Fence ? PLAIN_IN_CODE : PLAIN;
    if (!HOLDS_TEXT.has(token) || !plain.test(pending)) return;
    this.#last.data = pending;
    this.#parent.append(this.#last);
  }

  /** Finish the text. Characters that the parser still holds back become text. */
  end() {
    this.#last.remove();
    markdown.parser_end(this.#parser);
  }

  get #parent() {
    return this.#open.at(-1)?.node ?? this.element;
  }

  #newParser() {
    return markdown.parser({
      data: undefined,
      add_token: (_, token) => this.#add(token),
      end_token: () => this.#end(),
      add_text: (_, text) => this.#parent.append(text),
      set_attr: (_, name, value) => this.#set(name, value),
    });
  }

  /** @param {number} token */
  #add(token) {
    const node = this.#open.length < DEEPEST ? this.#newNode(token) : null;
    this.#open.push({ token, node: node ?? /** @type {HTMLElement} */ (this.#parent), href: "" });
  }

  /**
   * @param {number} token
   * @returns {HTMLElement|null} the element for the text that follows, or null for the surrounding element
   */
  #newNode(token) {
    const parent = this.#parent;
    const tag = TAGS.get(token);
    switch (token) {
      case Token.Code_Fence:
      case Token.Code_Block:
        return this.#addCode(parent);
      case Token.Table_Cell: {
        const isHead = parent.parentElement?.firstElementChild === parent;
        return append(parent, element(isHead ? "th" : "td"));
      }
      case Token.Line_Break:
        parent.append("\n");
        return null;
      case Token.Checkbox:
        parent.append("☐ ");
        return null;
      case Token.Equation_Block:
      case Token.Equation_Inline: // the server does not render equations
        parent.append("$");
        return null;
    }
    if (tag === undefined) return null;
    const node = append(parent, element(tag));
    if (tag === "ul" || tag === "ol" || tag === "table") node.dir = "auto";
    if (tag === "table") node.tabIndex = 0;
    if (token === Token.Image) node.className = "image";
    return node;
  }

  /**
   * Add a code block with the same structure as the server's, so that nothing moves when the server's HTML replaces it.
   * @param {Parent} parent
   */
  #addCode(parent) {
    const code = element("code");
    const head = element("div", { class: "code-head" }, element("span", { class: "code-language" }));
    const box = element("div", { class: "code-block" }, head, element("pre", { tabindex: "0" }, code));
    parent.append(box);
    addCopyButtons(box, this.#i18n);
    return code;
  }

  #end() {
    const last = this.#open.pop();
    if (last?.token === Token.Equation_Block || last?.token === Token.Equation_Inline) this.#parent.append("$");
    if (last?.token !== Token.Link || last.node === this.#parent) return;
    if (last.node.tagName !== "A") {
      // brackets without a valid link target are text
      last.node.prepend("[");
      last.node.append(last.href ? `](${last.href})` : "]");
    }
  }

  /** @param {number} name @param {string} value */
  #set(name, value) {
    const open = this.#open.at(-1);
    if (!open) return;
    if (name === Attr.Href) {
      open.href = value;
      if (SAFE.test(value) && open.node !== this.#open.at(-2)?.node) open.node = asLink(open.node, value);
    } else if (name === Attr.Lang) {
      const label = open.node.closest(".code-block")?.querySelector(".code-language");
      if (label) label.textContent = value.trim().split(/\s+/)[0]?.slice(0, 30) ?? "";
    } else if (name === Attr.Start && /^\d{1,9}$/.test(value)) open.node.setAttribute("start", value);
    else if (name === Attr.Checked) {
      const box = open.node.lastChild;
      if (box instanceof Text) box.data = "☑ ";
    }
  }
}

/** @template {HTMLElement} Made @param {Parent} parent @param {Made} node */
function append(parent, node) {
  parent.append(node);
  return node;
}

/** @param {HTMLElement} node @param {string} href */
function asLink(node, href) {
  const link = element("a", { href, target: "_blank", rel: "noopener noreferrer" }, ...node.childNodes);
  node.replaceWith(link);
  return link;
}
