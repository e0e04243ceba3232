/**
 * The list of conversations on a page, and its search. An outdated list is refreshed with the server's own template.
 */

import { request } from "../net/api.js";
import { byId, isComposing, pageFrom, placeAfter } from "./dom.js";

/** @typedef {import("../state/types.js").ListedConversation} ListedConversation */

const GAP_MS = 2_000;
const AIM_MS = 800;

/** The known state of the entries of a list, which shows whether the list is outdated. */
export class KnownConversations {
  /** @type {Map<string, string>} */
  #titles = new Map();
  /** @type {Set<string>} */
  #awake = new Set();

  /** @param {Iterable<ListedConversation>} shown */
  constructor(shown) {
    this.update(shown);
  }

  /**
   * Update the known state. The list is outdated if a conversation is new or renamed, or has become busy or idle.
   * @param {Iterable<ListedConversation>} listed
   * @returns {boolean} whether the list is outdated
   */
  update(listed) {
    const awake = new Set();
    let isBehind = false;
    for (const { id, title, standing } of listed) {
      const oldTitle = this.#titles.get(id);
      const isUp = standing !== "" && !this.#awake.has(id);
      isBehind ||= oldTitle === undefined || (title !== "" && title !== oldTitle) || isUp;
      this.#titles.set(id, title || (oldTitle ?? ""));
      if (standing !== "") awake.add(id);
    }
    isBehind ||= [...this.#awake].some((id) => !awake.has(id));
    this.#awake = awake;
    return isBehind;
  }
}

/** Refreshes a list from a newly fetched page. Entries that remain keep their elements and the focus. */
export class ConversationList {
  #region;
  #conversations;
  #isBehind = false;
  #isRefreshing = false;
  #aimedAt = Number.NEGATIVE_INFINITY;
  #looks = 0;
  #onShown;
  /** @type {string|null} */
  #search = null;

  /**
   * @param {HTMLElement} region the element around the list, whose id is the same on every page
   * @param {() => void} [onShown] called when the list is up to date
   */
  constructor(region, onShown = () => {}) {
    this.#region = region;
    this.#onShown = onShown;
    this.#conversations = new KnownConversations(shownIn(region));
    region.addEventListener("pointermove", () => {
      this.#aimedAt = performance.now();
    });
  }

  /** @param {Iterable<ListedConversation>} listed all conversations that are not idle, and any others that are known */
  update(listed) {
    if (this.#conversations.update(listed)) this.#isBehind = true;
    if (this.#isBehind) void this.refresh();
  }

  /** Show only conversations with this text in their title. @param {string} text */
  search(text) {
    this.#search = text;
    return this.refreshNow();
  }

  /**
   * Refresh immediately, because of an action of the person. The response is dropped if a newer request was sent
   * meanwhile.
   * @returns {Promise<boolean>} whether the list was refreshed
   */
  async refreshNow() {
    const look = ++this.#looks;
    const fresh = await this.#ask();
    // Wait while the pointer moves, so that no entry moves away from a click.
    while (fresh && performance.now() - this.#aimedAt < AIM_MS) await pause(AIM_MS);
    if (fresh && look === this.#looks) this.#show(fresh);
    return fresh !== null;
  }

  /**
   * Refresh with at most one request at a time and a pause between requests. After a failure, the next change tries
   * again.
   */
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

  /**
   * @returns {Promise<Element|null>} the list on the server's page, or null if the user is signed out or the server is
   * unreachable
   */
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
    const newList = fresh.querySelector("ul");
    if (list && newList) {
      takeOver(list, newList);
      for (const rest of [".list-nothing", ".list-pages"]) {
        this.#region.querySelector(rest)?.remove();
        const now = fresh.querySelector(rest);
        if (now) this.#region.append(now);
      }
    } else this.#replace(fresh);
    if (focused instanceof HTMLElement && focused !== document.activeElement) focused.focus({ preventScroll: true });
    this.#onShown();
  }

  /**
   * Replace the whole region, because the first entry was added or the last one removed. The form with the chosen agent
   * is kept.
   * @param {Element} fresh
   */
  #replace(fresh) {
    const form = this.#region.querySelector("form");
    if (form) fresh.querySelector("form")?.replaceWith(form);
    this.#region.replaceChildren(...fresh.childNodes);
  }
}

/** @param {Element} list @param {Element} newList the current list from the server */
function takeOver(list, newList) {
  const entries = new Map([...list.children].map((entry) => [idOf(entry), entry]));
  let previous = null;
  for (const fresh of [...newList.children]) {
    const entry = entries.get(idOf(fresh));
    entries.delete(idOf(fresh));
    if (entry) refreshEntry(entry, fresh);
    placeAfter(list, entry ?? fresh, previous);
    previous = entry ?? fresh;
  }
  for (const entry of entries.values()) takeOut(entry);
}

/** Remove an entry and move the focus to the next one. @param {Element} entry */
export function takeOut(entry) {
  const entries = [...(entry.parentElement?.querySelectorAll(".list-entry") ?? [])];
  const place = entries.indexOf(entry);
  const next = (entries[place + 1] ?? entries[place - 1])?.querySelector("a");
  const hadFocus = entry.contains(document.activeElement);
  entry.remove();
  if (hadFocus) (next ?? byId(document, "conversation-search", HTMLElement)).focus();
}

/** @param {Element} entry @param {Element} fresh */
function refreshEntry(entry, fresh) {
  if (entry.isEqualNode(fresh)) return;
  for (const name of ["data-title", "data-pinned", "data-seq", "data-agent"]) {
    const value = fresh.getAttribute(name);
    if (value === null) entry.removeAttribute(name);
    else entry.setAttribute(name, value);
  }
  const [link, made] = [entry.querySelector("a"), fresh.querySelector("a")];
  if (link && made) link.replaceChildren(...made.childNodes);
  const label = fresh.querySelector("button")?.getAttribute("aria-label");
  if (label) entry.querySelector("button")?.setAttribute("aria-label", label);
}

/** @param {Element} region @returns {Array<ListedConversation>} */
function shownIn(region) {
  return [...region.querySelectorAll("li.list-entry")].map((entry) => ({
    id: idOf(entry),
    title: entry.querySelector(".conversation-title")?.textContent ?? "",
    standing: /** @type {HTMLElement|null} */ (entry.querySelector(".mark"))?.dataset.standing ?? "",
  }));
}

/** Return the id of an entry's conversation, or the key of a heading. @param {Element} entry */
const idOf = (entry) => /** @type {HTMLElement} */ (entry).dataset.key ?? "";

/** @param {number} ms */
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const PAUSE_MS = 200;

/**
 * Listen to the search field of the list.
 * @param {(text: string) => void} search called after a pause in typing
 * @param {() => void} [leave] moves the focus after Esc
 */
export function listenToSearch(search, leave = () => {}) {
  const field = byId(document, "conversation-search", HTMLInputElement);
  let timer = 0;
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => search(field.value.trim()), PAUSE_MS);
  });
  // Esc in this field must not cancel a turn.
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || isComposing(event)) return;
    event.preventDefault();
    clearTimeout(timer);
    if (field.value) search("");
    field.value = "";
    field.blur();
    leave();
  });
}
