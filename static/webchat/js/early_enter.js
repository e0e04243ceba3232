/**
 * Enter in the empty seconds before the page's own script is there: what was written stays in sight and is sent by that script.
 *
 * A classic script in the head: nobody can write before it has run.
 */

document.addEventListener("keydown", (event) => {
  const { target: field, key, shiftKey, isComposing, defaultPrevented } = event;
  if (!(field instanceof HTMLTextAreaElement) || field.id !== "composer-input") return;
  if (key !== "Enter" || shiftKey || isComposing || defaultPrevented) return;
  event.preventDefault();
  field.readOnly = field.value.trim() !== "";
});
