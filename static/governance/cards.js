// Rows of the admin's lists as cards on a phone, as those of our own pages: each cell says which column it is of. A
// list stays as it is without JavaScript, and under a theme that names its cells itself. It scrolls in its box then.

/** @param {HTMLTableElement} table */
function makeCards(table) {
  const names = [...(table.tHead?.rows[0]?.cells ?? [])].map((cell) =>
    cell.querySelector(".text")?.textContent?.trim(),
  );
  const cells = /** @type {NodeListOf<HTMLTableCellElement>} */ (table.querySelectorAll("tbody > tr > td"));
  if ([...cells].some((cell) => cell.dataset.label !== undefined)) return;
  table.classList.add("governance-cards");
  for (const cell of cells) {
    const name = names[cell.cellIndex];
    if (name) cell.dataset.label = name;
  }
}

function makeAll() {
  const table = document.getElementById("result_list");
  if (table instanceof HTMLTableElement && !table.classList.contains("governance-cards")) makeCards(table);
}

document.addEventListener("DOMContentLoaded", () => {
  makeAll();
  // A list that is read again by itself is another one then.
  for (const part of document.querySelectorAll("[data-refresh]")) {
    new MutationObserver(makeAll).observe(part, { childList: true });
  }
});
