/**
 * Enter in the empty seconds before the page's own script is there: what was written stays in sight and is sent by that script.
 *
 * A classic script in the head: nobody can write before it has run.
 */

document.addEventListener("keydown", (event) => {
  const { target: field, key, keyCode, shiftKey, isComposing, defaultPrevented } = event;
  if (!(field instanceof HTMLTextAreaElement) || field.id !== "composer-input") return;
  if (key !== "Enter" || shiftKey || isComposing || keyCode === 229 || defaultPrevented) return; // as in `view/dom.js`
  event.preventDefault();
  field.readOnly = field.value.trim() !== "";
});
