/** `<chat-transcript>`: the conversation, turn by turn; redraws only what changed and keeps to the newest line. */

import { element, icon, setSanitisedHtml, setText } from "./dom.js";
import { isTurnOver } from "./status.js";
import { ToolCallElement } from "./tool_call.js";
import { endingWords } from "./words.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").TextItem} TextItem */
/** @typedef {import("./types.js").Turn} Turn */
/** @typedef {import("./tool_call.js").View} View */
/** @typedef {Readonly<{turn: Turn, viewer: string, frozen: boolean, section: HTMLElement, parts: Map<string, HTMLElement>}>} Drawn */

/** How near to the end counts as reading the newest line. */
const STICK_PX = 80;

/** Draws `State.turns` and the messages that are still on their way. */
export class ChatTranscriptElement extends HTMLElement {
  /** @type {Map<string, Drawn>} */
  #drawn = new Map();
  #outbox = element("div", { class: "outbox" });
  /** @type {State["outbox"]} */
  #shownOutbox = [];
  #isFollowing = true;
  #lastTop = 0;
  #events = new AbortController();
  /** The running bar, a growing message and a phone's keyboard take height away. */
  #resized = new ResizeObserver(() => {
    if (this.#isFollowing) this.follow();
  });

  /** Whether the newest line is in sight. @returns {boolean} */
  get isAtEnd() {
    return this.scrollHeight - this.scrollTop - this.clientHeight < STICK_PX;
  }

  /** @returns {Array<ToolCallElement>} */
  get cards() {
    return /** @type {Array<ToolCallElement>} */ ([...this.querySelectorAll("tool-call")]);
  }

  get isFollowing() {
    return this.#isFollowing;
  }

  connectedCallback() {
    this.#events.abort();
    this.#events = new AbortController();
    this.addEventListener("scroll", () => this.#scrolled(), { signal: this.#events.signal, passive: true });
    this.#resized.observe(this);
  }

  disconnectedCallback() {
    this.#events.abort();
    this.#resized.disconnect();
  }

  /** Go to the newest line and stay with it, until the person scrolls away from it. */
  follow() {
    this.#isFollowing = true;
    this.scrollTop = this.scrollHeight;
  }

  /** Only a move upwards is a wish to read elsewhere: new lines, too, change the distance from the end. */
  #scrolled() {
    const isUpwards = this.scrollTop < this.#lastTop;
    if (this.isAtEnd) this.#isFollowing = true;
    else if (isUpwards) this.#isFollowing = false;
    this.#lastTop = this.scrollTop;
  }

  /** @param {State} state @param {View} view */
  render(state, view) {
    const kept = new Set(state.turns.map((turn) => turn.id));
    for (const [id, drawn] of this.#drawn) {
      if (kept.has(id)) continue;
      drawn.section.remove();
      this.#drawn.delete(id);
    }
    /** @type {Element|null} */
    let previous = this.querySelector(":scope > .transcript-earlier");
    for (const turn of state.turns) {
      const { section } = this.#renderTurn(turn, view);
      placeAfter(this, section, previous);
      previous = section;
    }
    this.#renderOutbox(state, view);
    if (this.#isFollowing) this.follow();
  }

  /** Repaint the clocks. @param {View} view */
  tick(view) {
    for (const card of this.cards) card.tick(view);
  }

  /** @param {Turn} turn @param {View} view @returns {Drawn} */
  #renderTurn(turn, view) {
    const before = this.#drawn.get(turn.id);
    const frozen = view.frozenAt !== null;
    if (before?.turn === turn && before.viewer === view.viewer && before.frozen === frozen) return before;
    const section = before?.section ?? element("section", { class: "turn" });
    const parts = before?.parts ?? new Map();
    const drawn = { turn, viewer: view.viewer, frozen, section, parts };
    section.dataset.status = turn.status;
    drawParts(drawn, view);
    this.#drawn.set(turn.id, drawn);
    return drawn;
  }

  /** @param {State} state @param {View} view */
  #renderOutbox(state, { words }) {
    this.append(this.#outbox);
    if (this.#shownOutbox === state.outbox && this.#outbox.dataset.status === state.connection.status) return;
    this.#shownOutbox = state.outbox;
    this.#outbox.dataset.status = state.connection.status;
    const isLive = state.connection.frozenAt === null;
    /** @param {import("./types.js").OutboxMessage} message */
    const label = (message) =>
      message.turnId !== null ? "message_queued" : isLive ? "message_sending" : "message_waiting";
    this.#outbox.replaceChildren(
      ...state.outbox.map((message) =>
        element(
          "article",
          { class: "message message-user is-pending" },
          element("div", { class: "message-text", text: message.text }),
          element("p", { class: "message-note", text: words.text(label(message)) }),
        ),
      ),
    );
  }
}

/** @param {Drawn} drawn @param {View} view */
function drawParts(drawn, view) {
  const { turn, section, parts } = drawn;
  const nodes = turn.items.map((item) =>
    item.kind === "call" ? callNode(drawn, item.toolId, view) : textNode(drawn, item, view),
  );
  if (turn.partial) nodes.push(partialNode(drawn, view));
  const note = endingNode(turn, view);
  if (turn.status === "queued") nodes.push(part(parts, "queued", () => queued(view)));
  if (isThinking(turn)) nodes.push(part(parts, "thinking", () => thinking(view)));
  if (turn.errorMessage && turn.status !== "failed") {
    nodes.push(
      part(parts, `error ${turn.errorMessage}`, () => element("p", { class: "turn-note", text: turn.errorMessage })),
    );
  }
  if (turn.repairs > 0) nodes.push(part(parts, "repairs", () => element("p", { class: "turn-note" })));
  const repairs = parts.get("repairs");
  if (repairs) setText(repairs, view.words.count("history_repaired", turn.repairs));
  const wanted = note ? [...nodes, note] : nodes;
  for (const child of [...section.children]) if (!wanted.includes(/** @type {HTMLElement} */ (child))) child.remove();
  /** @type {Element|null} */
  let previous = null;
  for (const node of wanted) {
    placeAfter(section, node, previous);
    previous = node;
  }
}

/** Moving an element takes its focus and its scroll place away, so only move what is out of place. @param {Element} parent @param {Element} node @param {Element|null} previous */
function placeAfter(parent, node, previous) {
  const next = previous ? previous.nextElementSibling : parent.firstElementChild;
  if (next !== node) parent.insertBefore(node, next);
}

/** @template {HTMLElement} T @param {Map<string, HTMLElement>} parts @param {string} key @param {() => T} make @returns {T} */
function part(parts, key, make) {
  const known = /** @type {T|undefined} */ (parts.get(key));
  if (known) return known;
  const created = make();
  parts.set(key, created);
  return created;
}

/** @param {Drawn} drawn @param {string} toolId @param {View} view */
function callNode({ turn, parts }, toolId, view) {
  const card = part(parts, `call ${toolId}`, () => new ToolCallElement());
  const call = turn.calls[toolId];
  if (call) card.show(turn.id, call, view);
  return card;
}

/** @param {Drawn} drawn @param {TextItem} item @param {View} view */
function textNode({ parts }, item, { words }) {
  return part(parts, item.key, () => {
    const text = element("div", { class: "message-text" });
    if (item.html) {
      text.classList.add("prose");
      setSanitisedHtml(text, item.html);
    } else setText(text, item.text);
    const article = messageArticle(item.kind, item.at, words);
    article.append(text);
    if (item.interrupted)
      article.append(element("p", { class: "message-note", text: words.text("message_interrupted") }));
    return article;
  });
}

/** The text that is being written; it only ever grows, so that a selection in it stays. @param {Drawn} drawn @param {View} view */
function partialNode({ turn, parts }, { words }) {
  const article = part(parts, "partial", () => {
    const created = messageArticle("agent", "", words);
    created.append(element("div", { class: "message-text" }));
    created.setAttribute("aria-busy", "true");
    return created;
  });
  const target = /** @type {HTMLElement} */ (article.lastElementChild);
  const known = target.firstChild;
  if (known instanceof Text && turn.partial.startsWith(known.data)) known.appendData(turn.partial.slice(known.length));
  else setText(target, turn.partial);
  return article;
}

/** @param {"user"|"agent"} kind @param {string} at @param {import("./words.js").Words} words */
function messageArticle(kind, at, words) {
  const time = at ? new Date(at).toLocaleTimeString(document.documentElement.lang, { timeStyle: "short" }) : "";
  const label = words.text(kind === "user" ? "author_you" : "author_agent");
  return element("article", { class: `message message-${kind}`, "aria-label": time ? `${label}, ${time}` : label });
}

/** @param {Turn} turn @param {View} view @returns {HTMLElement|null} */
function endingNode(turn, { words, viewer }) {
  const ending = endingWords(words, turn, viewer);
  if (!ending) return null;
  const note = element("p", { class: "turn-end", "data-status": turn.status });
  note.append(icon(turn.status === "failed" ? "warning" : turn.status === "timed_out" ? "clock" : "square"));
  note.append(element("strong", { text: ending.title }));
  if (ending.detail) note.append(element("span", { text: ending.detail }));
  if (turn.status === "failed") note.append(retryButton(turn, words));
  return note;
}

/** Sends the same message again, as a new turn; the stylesheet offers it on the last turn only. @param {Turn} turn @param {import("./words.js").Words} words */
function retryButton(turn, words) {
  const button = element("button", { class: "button turn-retry", type: "button", text: words.text("try_again") });
  button.addEventListener("click", () => {
    const said = turn.items.find((item) => item.kind === "user");
    const detail = { text: said?.kind === "user" ? said.text : "" };
    button.dispatchEvent(new CustomEvent("turn-retry", { bubbles: true, detail }));
  });
  return button;
}

/** Whether the agent is at work with nothing to show for it yet. @param {Turn} turn */
function isThinking(turn) {
  if (isTurnOver(turn.status) || turn.status !== "running" || turn.partial) return false;
  return Object.values(turn.calls).every((call) => call.result !== null || call.durationMs !== null);
}

/** @param {View} view */
const queued = ({ words }) => element("p", { class: "message-note turn-queued", text: words.text("message_queued") });

/** @param {View} view */
function thinking({ words }) {
  return element(
    "p",
    { class: "thinking" },
    element("span", { class: "thinking-dot" }),
    element("span", { class: "thinking-dot" }),
    element("span", { class: "thinking-dot" }),
    element("span", { class: "visually-hidden", text: words.text("thinking") }),
  );
}

customElements.define("chat-transcript", ChatTranscriptElement);
