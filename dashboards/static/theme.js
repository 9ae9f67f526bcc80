"use strict";
// Light or dark before the first paint: the reader's choice if there is one, else the system's.
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const apply = () => { const theme = chosen(); if (theme) root.dataset.theme = theme; else delete root.dataset.theme; };
  const announce = () => document.dispatchEvent(new Event("themechange"));
  apply();
  dark.addEventListener("change", announce);
  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    button.hidden = false;
    button.addEventListener("click", () => {
      const isDark = (chosen() || (dark.matches ? "dark" : "light")) === "dark";
      try { localStorage.setItem("theme", isDark ? "light" : "dark"); } catch { /* private mode: for this page only */ }
      root.dataset.theme = isDark ? "light" : "dark";
      announce();
    });
  });
})();
