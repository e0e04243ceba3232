/**
 * Handles Enter before the scripts of the chat have loaded. The text stays in the field, and those scripts send it
 * later.
 *
 * This is a classic script in the head, so that it runs before the user can type.
 */

document.addEventListener("keydown", (event) => {
  const { target: field, key, keyCode, shiftKey, isComposing, defaultPrevented } = event;
  if (!(field instanceof HTMLTextAreaElement) || field.id !== "composer-input") return;
  if (key !== "Enter" || shiftKey || isComposing || keyCode === 229 || defaultPrevented) return; // the same conditions as in `view/dom.js`
  event.preventDefault();
  field.readOnly = field.value.trim() !== "";
});
