/** The list of conversations on a page, brought up to date from the server's own template when it is behind. */

import { request } from "../net/request.js";
import { byId, pageFrom, placeAfter } from "./dom.js";

/** @typedef {import("../state/types.js").ListedConversation} ListedConversation */

const GAP_MS = 2_000;
const AIM_MS = 800;

/** What a list shows and what was said since: tells whether it is behind. */
export class KnownConversations {
  /** @type {Map<string, string>} */
  #titles = new Map();
  /** @type {Set<string>} */
  #awake = new Set();

  /** @param {Iterable<ListedConversation>} shown */
  constructor(shown) {
    this.update(shown);
  }

  /** A conversation that is not known, has got another title, is at rest no more or has come to rest. @param {Iterable<ListedConversation>} listed @returns {boolean} whether there was one */
  update(listed) {
    const awake = new Set();
    let isBehind = false;
    for (const { id, title, standing } of listed) {
      const known = this.#titles.get(id);
      const isUp = standing !== "" && !this.#awake.has(id);
      isBehind ||= known === undefined || (title !== "" && title !== known) || isUp;
      this.#titles.set(id, title || (known ?? ""));
      if (standing !== "") awake.add(id);
    }
    isBehind ||= [...this.#awake].some((id) => !awake.has(id));
    this.#awake = awake;
    return isBehind;
  }
}

/** Asks for the page again and takes over its entries; those that stay keep their elements, and so the focus. */
export class ConversationList {
  #region;
  #known;
  #isBehind = false;
  #isRefreshing = false;
  #aimedAt = Number.NEGATIVE_INFINITY;
  #looks = 0;
  #onShown;
  /** @type {string|null} */
  #search = null;

  /**
   * @param {HTMLElement} region what holds the list; its id is that of the page's template
   * @param {() => void} [onShown] called when the list is as the server has it
   */
  constructor(region, onShown = () => {}) {
    this.#region = region;
    this.#onShown = onShown;
    this.#known = new KnownConversations(shownIn(region));
    region.addEventListener("pointermove", () => {
      this.#aimedAt = performance.now();
    });
  }

  /** @param {Iterable<ListedConversation>} listed all that are not at rest, and whatever else is known */
  update(listed) {
    if (this.#known.update(listed)) this.#isBehind = true;
    if (this.#isBehind) void this.refresh();
  }

  /** Show only what has this in its title. @param {string} text */
  search(text) {
    this.#search = text;
    return this.refreshNow();
  }

  /** For what a person waits for; an answer that was overtaken is dropped. @returns {Promise<boolean>} whether there was one */
  async refreshNow() {
    const look = ++this.#looks;
    const fresh = await this.#ask();
    // Nothing moves under a pointer that is about to click.
    while (fresh && performance.now() - this.#aimedAt < AIM_MS) await pause(AIM_MS);
    if (fresh && look === this.#looks) this.#show(fresh);
    return fresh !== null;
  }

  /** One look at a time, and not one after the other. The next thing that is said makes up for one that fails. */
  async refresh() {
    if (this.#isRefreshing) return;
    this.#isRefreshing = true;
    this.#isBehind = false;
    const isThere = await this.refreshNow();
    await pause(GAP_MS);
    this.#isRefreshing = false;
    if (!isThere) this.#isBehind = true;
    else if (this.#isBehind) void this.refresh();
  }

  /** @returns {Promise<Element|null>} null where the page is not there any more: signed out, or the server is away */
  async #ask() {
    const address = new URL(this.#region.dataset.listUrl ?? "", location.href);
    if (this.#search !== null) {
      address.searchParams.set("search", this.#search);
      address.searchParams.delete("page");
    }
    const text = await request(address, { headers: { accept: "text/html" }, cache: "no-store" })
      .then((answer) => (answer.ok ? answer.text() : ""))
      .catch(() => "");
    return pageFrom(text).getElementById(this.#region.id);
  }

  /** @param {Element} fresh */
  #show(fresh) {
    const focused = this.#region.contains(document.activeElement) ? document.activeElement : null;
    const list = this.#region.querySelector("ul");
    const made = fresh.querySelector("ul");
    if (list && made) {
      takeOver(list, made);
      for (const rest of [".list-nothing", ".list-pages"]) {
        this.#region.querySelector(rest)?.remove();
        const now = fresh.querySelector(rest);
        if (now) this.#region.append(now);
      }
    } else this.#replace(fresh);
    if (focused instanceof HTMLElement && focused !== document.activeElement) focused.focus({ preventScroll: true });
    this.#onShown();
  }

  /** The first entry has come, or the last one has gone; what is chosen for a new one stays. @param {Element} fresh */
  #replace(fresh) {
    const form = this.#region.querySelector("form");
    if (form) fresh.querySelector("form")?.replaceWith(form);
    this.#region.replaceChildren(...fresh.childNodes);
  }
}

/** @param {Element} list @param {Element} made the same list as it is now */
function takeOver(list, made) {
  const known = new Map([...list.children].map((entry) => [idOf(entry), entry]));
  let previous = null;
  for (const fresh of [...made.children]) {
    const kept = known.get(idOf(fresh));
    known.delete(idOf(fresh));
    if (kept) refreshEntry(kept, fresh);
    placeAfter(list, kept ?? fresh, previous);
    previous = kept ?? fresh;
  }
  for (const gone of known.values()) takeOut(gone);
}

/** Take an entry out; the focus goes on to the next one. @param {Element} entry */
export function takeOut(entry) {
  const entries = [...(entry.parentElement?.querySelectorAll(".list-entry") ?? [])];
  const place = entries.indexOf(entry);
  const next = (entries[place + 1] ?? entries[place - 1])?.querySelector("a");
  const hadFocus = entry.contains(document.activeElement);
  entry.remove();
  if (hadFocus) (next ?? byId(document, "conversation-search", HTMLElement)).focus();
}

/** @param {Element} kept @param {Element} fresh */
function refreshEntry(kept, fresh) {
  if (kept.isEqualNode(fresh)) return;
  for (const name of ["data-title", "data-pinned", "data-seq", "data-agent"]) {
    const value = fresh.getAttribute(name);
    if (value === null) kept.removeAttribute(name);
    else kept.setAttribute(name, value);
  }
  const [link, made] = [kept.querySelector("a"), fresh.querySelector("a")];
  if (link && made) link.replaceChildren(...made.childNodes);
  const label = fresh.querySelector("button")?.getAttribute("aria-label");
  if (label) kept.querySelector("button")?.setAttribute("aria-label", label);
}

/** @param {Element} region @returns {Array<ListedConversation>} */
function shownIn(region) {
  return [...region.querySelectorAll("li.list-entry")].map((entry) => ({
    id: idOf(entry),
    title: entry.querySelector(".conversation-title")?.textContent ?? "",
    standing: /** @type {HTMLElement|null} */ (entry.querySelector(".mark"))?.dataset.standing ?? "",
  }));
}

/** The id of a conversation, or the name of a day. @param {Element} entry */
const idOf = (entry) => /** @type {HTMLElement} */ (entry).dataset.key ?? "";

/** @param {number} ms */
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
