// Says, while a total limit is typed, what it would have done to the last calls of its tool.
// Without JavaScript the button "Preview" says it.

const PAUSE = 300; // milliseconds without a key until the server is asked
const FIELD = "-timeout_ms";

/**
 * Puts words into their place. A button that the mouse is on stays under it.
 * @param {HTMLElement} place @param {string} words
 */
function tell(place, words) {
  const aimed = document.querySelector(":is(button, input[type=submit]):hover");
  const before = aimed?.getBoundingClientRect().top ?? 0;
  place.textContent = words;
  if (aimed) window.scrollBy(0, aimed.getBoundingClientRect().top - before);
}

/** @param {HTMLFormElement} form the form of the limits, with a place for the words of each tool */
function begin(form) {
  let timer = 0;
  let asked = new AbortController();

  /** @param {string} tool @param {HTMLElement} place */
  const ask = async (tool, place) => {
    asked.abort();
    const mine = new AbortController();
    asked = mine;
    const body = new FormData(form);
    body.set("_tell", tool);
    try {
      const headers = { Accept: "application/json" };
      const answer = await fetch(location.href, {
        method: "POST",
        body,
        headers,
        signal: mine.signal,
      });
      const isJson = answer.headers.get("Content-Type")?.startsWith("application/json");
      tell(place, answer.ok && isJson ? (await answer.json()).told : "");
    } catch {
      // The server is away: words about another number are worse than none. An aborted one has a successor.
      if (!mine.signal.aborted) tell(place, "");
    }
  };

  form.addEventListener("input", (event) => {
    const field = event.target;
    if (!(field instanceof HTMLInputElement) || !field.name.endsWith(FIELD)) return;
    const tool = field.name.slice(0, -FIELD.length);
    const place = form.querySelector(`[data-told="${CSS.escape(tool)}"]`);
    if (!(place instanceof HTMLElement)) return;
    window.clearTimeout(timer);
    timer = window.setTimeout(ask, PAUSE, tool, place);
  });
}

document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("governance-limits");
  if (form instanceof HTMLFormElement) begin(form);
});
