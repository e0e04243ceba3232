// Fetches the page every few seconds and replaces its parts with `data-refresh`, until the person pauses it. With
// `data-until-known`, it stops once no part has `data-open`. `data-from` is an address that has only the parts. Without
// JavaScript, a person reloads the page, or the browser does if that was chosen.

const SOON = 1; // seconds, while a request of the person is not done
const PATIENCE = 20; // seconds for an answer; a lost one must not stop the refresh
const AIM = 5; // seconds; a mouse that rests on a button for longer is not about to click
const BUTTONS = ":is(button, input[type=submit], a, summary)";

// The result of an action is shown once, not again after a reload or from a bookmark.
const address = new URL(location.href);
if (address.searchParams.has("did")) {
  const plain = new URL(address);
  plain.searchParams.delete("did");
  history.replaceState(history.state, "", plain);
}

let mouseMovedAt = Number.NEGATIVE_INFINITY;
document.addEventListener("pointermove", () => {
  mouseMovedAt = performance.now();
});

/** @returns {HTMLElement[]} the parts that are replaced, each with an id */
function parts() {
  return [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-refresh]"))];
}

/** @param {Document} page the current page of the server */
function takeOver(page) {
  if (isAboutToClick()) return; // the next refresh shows the change
  for (const part of parts()) {
    const newPart = page.getElementById(part.id);
    if (!newPart || newPart.innerHTML === part.innerHTML || isRead(part)) continue;
    const focused = /** @type {HTMLButtonElement | null} */ (
      part.contains(document.activeElement) ? document.activeElement : null
    );
    part.replaceChildren(...[...newPart.childNodes].map((node) => document.importNode(node, true)));
    if (focused) focusAgain(part, focused);
  }
  const title = page.querySelector("#content h1");
  const heading = document.querySelector("#content h1");
  if (title && heading) heading.textContent = title.textContent;
}

/** Whether all parts should wait, because a part that changes its height moves everything below it. @returns {boolean} */
function isAboutToClick() {
  if (document.querySelector(`${BUTTONS}:active`)) return true;
  return performance.now() - mouseMovedAt < AIM * 1000 && document.querySelector(`${BUTTONS}:hover`) !== null;
}

/** @param {HTMLElement} part @returns {boolean} whether it contains a text selection, which would be lost */
function isRead(part) {
  const selection = document.getSelection();
  return !!selection && !selection.isCollapsed && part.contains(selection.anchorNode);
}

/**
 * Restore the focus, or focus the part itself if the focused element is gone.
 * @param {HTMLElement} part @param {HTMLButtonElement} before
 */
function focusAgain(part, before) {
  const same = [...part.querySelectorAll("button, a, summary")].find((element) =>
    element instanceof HTMLButtonElement
      ? element.name === before.name && element.value === before.value
      : element.getAttribute("href") === before.getAttribute("href") && element.textContent === before.textContent,
  );
  /** @type {HTMLElement} */ (same ?? part).focus({ preventScroll: true });
}

/** @param {HTMLButtonElement} button */
function begin(button) {
  const seconds = Number(button.dataset.seconds);
  const words = { going: button.textContent, paused: button.dataset.paused ?? "" };
  const endsOnceKnown = button.dataset.untilKnown !== undefined;
  let isPaused = false;
  let timer = 0;

  const hide = () => {
    if (document.activeElement === button) parts()[0]?.focus({ preventScroll: true });
    button.hidden = true;
  };

  const wait = () => {
    window.clearTimeout(timer);
    const isOpen = document.querySelector("[data-refresh] [data-open]") !== null;
    if (endsOnceKnown && !isOpen) hide();
    else if (!isPaused) timer = window.setTimeout(read, (isOpen && !endsOnceKnown ? SOON : seconds) * 1000);
  };

  const read = async () => {
    try {
      if (!document.hidden) {
        const signal = AbortSignal.timeout(PATIENCE * 1000);
        const answer = await fetch(button.dataset.from ?? address, { headers: { Accept: "text/html" }, signal });
        if (answer.redirected || answer.status === 403) {
          pause(true); // signed out, which a reload of the page shows
          return;
        }
        const text = answer.ok ? await answer.text() : "";
        if (text && !isPaused) takeOver(new DOMParser().parseFromString(text, "text/html"));
      }
    } catch {
      // The server is unreachable; the next refresh tries again.
    }
    wait();
  };

  /** @param {boolean} shouldPause */
  const pause = (shouldPause) => {
    isPaused = shouldPause;
    button.textContent = shouldPause ? words.paused : words.going;
    wait();
  };

  button.addEventListener("click", () => pause(!isPaused));
  button.hidden = false;
  wait();
}

document.addEventListener("DOMContentLoaded", () => {
  const button = document.querySelector("button[data-refresh-pause]");
  if (button instanceof HTMLButtonElement) begin(button);
});
