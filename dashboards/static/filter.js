"use strict";
// Filters the rows of this page while one types; Enter asks the server, which looks at every series.
addEventListener("DOMContentLoaded", () => {
  const box = document.getElementById("filter");
  const table = document.getElementById("series");
  if (box) {
    document.addEventListener("keydown", (event) => {
      const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
      if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) { event.preventDefault(); box.focus(); }
    });
  }
  if (box && table) {
    box.addEventListener("input", () => {
      const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const body of table.tBodies) {
        let shown = 0;
        for (const row of body.rows) {
          if (row.dataset.words === undefined) continue;
          row.hidden = !words.every((word) => row.dataset.words.includes(word));
          shown += row.hidden ? 0 : 1;
        }
        body.hidden = shown === 0;
      }
    });
  }
  const all = document.getElementById("all");
  if (all) {
    all.hidden = false;
    all.addEventListener("change", () => {
      for (const one of document.querySelectorAll("input[name=regression_id]")) one.checked = all.checked;
    });
  }
});
