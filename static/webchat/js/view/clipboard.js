/** Copying to the clipboard, which browsers allow on trusted addresses only. */

/** @param {string} text @returns {Promise<boolean>} whether it is there now */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
