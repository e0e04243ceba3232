/** The form that signs out. It works on a page that is older than the last sign-in, too. */

import { renewToken } from "../net/csrf_token.js";

/** Send the form with the token of now. */
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
