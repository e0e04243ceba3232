// Shows, while a person types a total limit, its effect on the last calls of the tool.
// Without JavaScript, the button "Preview" shows it.

const PAUSE = 300; // milliseconds after the last key before the request
const FIELD = "-timeout_ms";

/**
 * Shows a text in its place, without moving a button away from the mouse.
 * @param {HTMLElement} place @param {string} text
 */
function show(place, text) {
  const button = document.querySelector(":is(button, input[type=submit]):hover");
  const before = button?.getBoundingClientRect().top ?? 0;
  place.textContent = text;
  if (button) window.scrollBy(0, button.getBoundingClientRect().top - before);
}

/** @param {HTMLFormElement} form the form of the limits, with a place for the text of each tool */
function begin(form) {
  /** The last request for each tool. @type {Map<string, AbortController>} */
  const requests = new Map();

  /** @param {string} tool @param {HTMLElement} place @param {AbortSignal} signal */
  const ask = async (tool, place, signal) => {
    if (signal.aborted) return;
    const body = new FormData(form);
    body.set("_tell", tool);
    try {
      const headers = { Accept: "application/json" };
      const answer = await fetch(location.href, { method: "POST", body, headers, signal });
      const isJson = answer.headers.get("Content-Type")?.startsWith("application/json");
      if (answer.ok && isJson) show(place, (await answer.json()).told);
    } catch {
      // The server is unreachable, or the number has changed.
    }
  };

  form.addEventListener("input", (event) => {
    const field = event.target;
    if (!(field instanceof HTMLInputElement) || !field.name.endsWith(FIELD)) return;
    const tool = field.name.slice(0, -FIELD.length);
    const place = form.querySelector(`[data-told="${CSS.escape(tool)}"]`);
    if (!(place instanceof HTMLElement)) return;
    show(place, ""); // a text about another number is worse than none
    requests.get(tool)?.abort();
    const controller = new AbortController();
    requests.set(tool, controller);
    window.setTimeout(ask, PAUSE, tool, place, controller.signal);
  });
}

document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("governance-limits");
  if (form instanceof HTMLFormElement) begin(form);
});
