/** What the browser tells of the page: it was away, it is in sight again, it is about to be left. */

/**
 * @typedef {Readonly<{
 *   connection: Readonly<{revive: () => void, suspect: () => void}>,
 *   onInSight: () => void,
 *   hasUnsent: () => boolean,
 *   signal: AbortSignal,
 * }>} Page
 */

/** A navigation that has not begun by then is none: it was stopped, or it is a download. */
const LEADS_FOR_MS = 1_000;

/** A browser that was away learns at once whether its line still stands. @param {Page} page */
export function listenToBrowser({ connection, onInSight, hasUnsent, signal }) {
  const revive = () => connection.revive();
  window.addEventListener("online", revive, { signal });
  window.addEventListener("focus", revive, { signal });
  window.addEventListener("pageshow", (event) => event.persisted && revive(), { signal });
  window.addEventListener("offline", () => connection.suspect(), { signal });
  const look = () => {
    if (document.visibilityState !== "visible") return;
    revive();
    onInSight();
  };
  document.addEventListener("visibilitychange", look, { signal });
  warnOfUnsent(hasUnsent, signal);
}

/** A tab that is closed forgets what is unsent. A link or a form of the page keeps it, so it leads on without a word. @param {() => boolean} hasUnsent @param {AbortSignal} signal */
function warnOfUnsent(hasUnsent, signal) {
  let isLeading = false;
  let timer = 0;
  const lead = (/** @type {Event} */ event) => {
    const [target] = event.composedPath(); // the event's own is the whole chat where that stands in a page of somebody else
    const way = event.type === "submit" ? "form:not([method=dialog])" : "a[href]:not([target], [download])";
    const isAway = event instanceof MouseEvent && (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);
    isLeading = !event.defaultPrevented && !isAway && target instanceof Element && target.closest(way) !== null;
    clearTimeout(timer);
    timer = window.setTimeout(() => {
      isLeading = false;
    }, LEADS_FOR_MS);
  };
  // After all others: a form that the page sends itself leads nowhere.
  window.addEventListener("click", lead, { signal });
  window.addEventListener("submit", lead, { signal });
  window.addEventListener("beforeunload", (event) => !isLeading && hasUnsent() && event.preventDefault(), { signal });
}
