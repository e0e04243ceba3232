/**
 * Applies the theme that was chosen in this browser: light, dark, or that of the system.
 *
 * This is a classic script in the head, so that it runs before the first paint and no wrong theme flashes up. It uses
 * the same storage key and values as Django's admin, so that one choice applies to both.
 */

(() => {
  const KEY = "theme";
  const root = document.documentElement;

  /**
   * Return the stored choice. If the browser forbids storage, a choice lasts only as long as the page.
   * @returns {string|null}
   */
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
      // the browser forbids storage
    }
  }

  /** @param {string|null} choice */
  function apply(choice) {
    const theme = choice === "light" || choice === "dark" ? choice : "auto";
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
