// Moves the actions below the rows, as on our own pages. If an action was refused, it selects the rows of all pages again, if
// they were selected. Without JavaScript the actions are above the rows, and only the rows of the page stay selected.

document.addEventListener("DOMContentLoaded", () => {
  const rows = document.querySelector("#changelist-form > .results");
  const actions = document.querySelector("#changelist-form > .actions");
  if (!rows || !actions) return;
  rows.after(actions);
  /** @type {HTMLElement | null} */ (actions.querySelector("[autofocus]"))?.focus(); // a moved element loses the focus
});

window.addEventListener("pageshow", () => {
  // After the admin's own listener, which counts the selected rows of this page.
  window.setTimeout(() => {
    const wasSelected = document.querySelector("div.actions input.select-across[data-chosen]");
    const selectAll = /** @type {HTMLElement | null} */ (document.querySelector("div.actions span.question a"));
    if (wasSelected && selectAll) selectAll.click();
  });
});
