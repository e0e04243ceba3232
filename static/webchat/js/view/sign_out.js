/** The sign-out form. It also works on a page that is older than the last sign-in. */

import { renewToken } from "../net/api.js";

/** Submit the form with the current CSRF token. */
export function listenToSignOut() {
  const form = document.getElementById("sign-out");
  if (!(form instanceof HTMLFormElement)) return;
  let isReady = false;
  form.addEventListener("submit", (event) => {
    if (isReady) return;
    event.preventDefault();
    void renewToken(document, { isForAnybody: true }).finally(() => {
      isReady = true;
      form.requestSubmit();
    });
  });
}
