/** Makes the sign-out form work even on a page that is older than the last sign-in. */

import { renewToken } from "../net/api.js";

/** Fetch the current CSRF token before the form is submitted. */
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
