// Shows the rows of the admin's lists as cards on a phone, like our own pages: each cell names its column. Without
// JavaScript, or under a theme that labels its cells itself, a list stays a table that scrolls.

const NOTHING = new Set(["—", "-"]);

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
  // A dash keeps a column in line. On a card it says nothing.
  for (const cell of document.querySelectorAll(".governance-cards tbody td")) {
    if (NOTHING.has(cell.textContent?.trim() ?? "")) cell.classList.add("governance-nothing");
  }
}

document.addEventListener("DOMContentLoaded", () => {
  makeAll();
  // An automatic refresh replaces the list.
  for (const part of document.querySelectorAll("[data-refresh]")) {
    new MutationObserver(makeAll).observe(part, { childList: true });
  }
});
