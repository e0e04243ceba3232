/** Copying to the clipboard, which browsers allow on trusted addresses only. */

/** What stands on a button that copies; its name begins with that. @param {HTMLButtonElement} button @param {string} said @param {string} label what it copies */
export function sayOnCopyButton(button, said, label) {
  button.textContent = said;
  button.setAttribute("aria-label", label.startsWith(said) ? label : `${said}: ${label}`);
}

/** @param {string} text @returns {Promise<boolean>} whether it is there now */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
