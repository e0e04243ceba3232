// What is done with chosen rows stands below them, as on our own pages. After an action was refused, the rows of all pages
// are chosen again, where they were. Without JavaScript it stands above, and only the rows of the page are chosen.

document.addEventListener("DOMContentLoaded", () => {
  const rows = document.querySelector("#changelist-form > .results");
  const actions = document.querySelector("#changelist-form > .actions");
  if (!rows || !actions) return;
  rows.after(actions);
  /** @type {HTMLElement | null} */ (actions.querySelector("[autofocus]"))?.focus(); // what is moved loses it
});

window.addEventListener("pageshow", () => {
  // Behind the admin's own listener, which counts the ticks of this page.
  window.setTimeout(() => {
    const wasChosen = document.querySelector("div.actions input.select-across[data-chosen]");
    const choose = /** @type {HTMLElement | null} */ (document.querySelector("div.actions span.question a"));
    if (wasChosen && choose) choose.click();
  });
});
