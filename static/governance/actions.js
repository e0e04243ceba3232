// After an action was refused: chooses the rows of all pages again, where they were. Nothing is chosen so without JavaScript.

window.addEventListener("pageshow", () => {
  // Behind the admin's own listener, which counts the ticks of this page.
  window.setTimeout(() => {
    const wasChosen = document.querySelector("div.actions input.select-across[data-chosen]");
    const choose = /** @type {HTMLElement | null} */ (document.querySelector("div.actions span.question a"));
    if (wasChosen && choose) choose.click();
  });
});
