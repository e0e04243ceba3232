// Reads the page again every few seconds and takes over its parts with `data-refresh`, until that is paused. A button
// with `data-until-known` ends it once no part is open any more. `data-from` names an address with the parts alone.
// Without JavaScript the page is loaded again by hand, or by the browser where that was chosen.

const SOON = 1; // seconds, while something that was asked for has not come true
const PATIENCE = 20; // seconds for an answer; one that never comes must not end the refreshing
const AIM = 5; // seconds without a move until a mouse on a button is taken for one that was left there
const BUTTONS = ":is(button, input[type=submit], a, summary)";

let mouseMovedAt = Number.NEGATIVE_INFINITY;
document.addEventListener("pointermove", () => {
  mouseMovedAt = performance.now();
});

/** @returns {HTMLElement[]} the parts that are taken over, each with an id */
function parts() {
  return [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-refresh]"))];
}

/** @param {Document} page the page as it is now */
function takeOver(page) {
  if (isAboutToClick()) return; // the next reading has it, too
  for (const part of parts()) {
    const fresh = page.getElementById(part.id);
    if (!fresh || fresh.innerHTML === part.innerHTML || isRead(part)) continue;
    const focused = /** @type {HTMLButtonElement | null} */ (
      part.contains(document.activeElement) ? document.activeElement : null
    );
    part.replaceChildren(...[...fresh.childNodes].map((node) => document.importNode(node, true)));
    if (focused) focusAgain(part, focused);
  }
  const title = page.querySelector("#content h1");
  const shown = document.querySelector("#content h1");
  if (title && shown) shown.textContent = title.textContent;
}

/** A part that grows or shrinks moves whatever stands below it: so all of them wait. @returns {boolean} */
function isAboutToClick() {
  if (document.querySelector(`${BUTTONS}:active`)) return true;
  return performance.now() - mouseMovedAt < AIM * 1000 && document.querySelector(`${BUTTONS}:hover`) !== null;
}

/** @param {HTMLElement} part @returns {boolean} whether somebody has selected text in it, which would be lost */
function isRead(part) {
  const selection = document.getSelection();
  return !!selection && !selection.isCollapsed && part.contains(selection.anchorNode);
}

/**
 * Put the focus back where it was; on the part itself where that is gone.
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
        const answer = await fetch(button.dataset.from ?? location.href, { headers: { Accept: "text/html" }, signal });
        if (answer.redirected || answer.status === 403) {
          pause(true); // signed out: the page says so once it is loaded again
          return;
        }
        const text = answer.ok ? await answer.text() : "";
        if (text && !isPaused) takeOver(new DOMParser().parseFromString(text, "text/html"));
      }
    } catch {
      // The server is not there for a moment: the next time.
    }
    wait();
  };

  /** @param {boolean} wanted */
  const pause = (wanted) => {
    isPaused = wanted;
    button.textContent = wanted ? words.paused : words.going;
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
