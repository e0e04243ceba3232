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
  /** What was asked last, for each tool. @type {Map<string, AbortController>} */
  const asked = new Map();

  /** @param {string} tool @param {HTMLElement} place @param {AbortSignal} signal */
  const ask = async (tool, place, signal) => {
    if (signal.aborted) return;
    const body = new FormData(form);
    body.set("_tell", tool);
    try {
      const headers = { Accept: "application/json" };
      const answer = await fetch(location.href, { method: "POST", body, headers, signal });
      const isJson = answer.headers.get("Content-Type")?.startsWith("application/json");
      if (answer.ok && isJson) tell(place, (await answer.json()).told);
    } catch {
      // The server is away, or the number is another one by now.
    }
  };

  form.addEventListener("input", (event) => {
    const field = event.target;
    if (!(field instanceof HTMLInputElement) || !field.name.endsWith(FIELD)) return;
    const tool = field.name.slice(0, -FIELD.length);
    const place = form.querySelector(`[data-told="${CSS.escape(tool)}"]`);
    if (!(place instanceof HTMLElement)) return;
    tell(place, ""); // words about another number are worse than none
    asked.get(tool)?.abort();
    const mine = new AbortController();
    asked.set(tool, mine);
    window.setTimeout(ask, PAUSE, tool, place, mine.signal);
  });
}

document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("governance-limits");
  if (form instanceof HTMLFormElement) begin(form);
});
