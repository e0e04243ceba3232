/**
 * The colours that this browser has chosen: light, dark, or those of the system.
 *
 * A classic script in the head: nothing is painted before it has run, so no page appears in the other colours first.
 * The name of the item and its values are those of Django's admin, so one choice holds for both.
 */

(() => {
  const KEY = "theme";
  const root = document.documentElement;

  /** A browser may keep nothing: then the choice lasts as long as the page. @returns {string|null} */
  function read() {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null;
    }
  }

  /** @param {string} theme */
  function keep(theme) {
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // see above
    }
  }

  /** @param {string|null} asked */
  function apply(asked) {
    const theme = asked === "light" || asked === "dark" ? asked : "auto";
    root.dataset.theme = theme;
    for (const meta of document.querySelectorAll("meta[data-scheme]")) {
      const scheme = meta.getAttribute("data-scheme");
      const chosen = theme === scheme ? "all" : "not all";
      meta.setAttribute("media", theme === "auto" ? `(prefers-color-scheme: ${scheme})` : chosen);
    }
    for (const choice of document.querySelectorAll("select[data-theme-choice]")) {
      if (choice instanceof HTMLSelectElement) choice.value = theme;
    }
  }

  apply(read());
  document.addEventListener("DOMContentLoaded", () => apply(read()));
  document.addEventListener("change", ({ target }) => {
    if (!(target instanceof HTMLSelectElement) || !target.matches("[data-theme-choice]")) return;
    keep(target.value);
    apply(target.value);
  });
  window.addEventListener("storage", ({ key }) => {
    if (key === KEY || key === null) apply(read());
  });
})();
