// Dark or light: as the system says, until somebody chooses; the choice is kept in this browser.
// Loaded before the first paint, and by the login page too, so it is a plain script and not a module.

(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");

  function chosen() {
    try {
      return localStorage.getItem("fencelock-theme");
    } catch {
      return null; // storage may be forbidden
    }
  }

  function keep(theme) {
    try {
      localStorage.setItem("fencelock-theme", theme);
    } catch {
      // then it lasts as long as the page
    }
  }

  function use(theme) {
    if (theme === "dark" || theme === "light") root.dataset.theme = theme;
    label();
  }

  function current() {
    return root.dataset.theme ?? (system.matches ? "dark" : "light");
  }

  function label() {
    for (const button of document.querySelectorAll("[data-theme-toggle]")) {
      button.setAttribute("aria-label", current() === "dark" ? "Use the light theme" : "Use the dark theme");
      button.title = button.getAttribute("aria-label");
    }
  }

  use(chosen());
  system.addEventListener("change", label);
  document.addEventListener("DOMContentLoaded", label);
  document.addEventListener("click", (event) => {
    if (!event.target.closest?.("[data-theme-toggle]")) return;
    const theme = current() === "dark" ? "light" : "dark";
    keep(theme);
    use(theme);
  });
})();
