"use strict";
// Draws every figure of the page. Colours arrive as var(--name) and are resolved from the style sheet, again on a theme change.
(() => {
  const probe = document.createElement("span");
  probe.hidden = true;
  const resolve = (value) => {
    if (typeof value === "string" && value.startsWith("var(--")) {
      probe.style.color = value;
      return getComputedStyle(probe).color;
    }
    if (Array.isArray(value)) return value.map(resolve);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, resolve(inner)]));
    }
    return value;
  };
  const config = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
  const fit = (layout, width) => {
    if (width > 560 || !layout.xaxis || !layout.xaxis.tickvals) return layout;
    const every = Math.ceil(layout.xaxis.tickvals.length / 4);
    const keep = (_, index) => index % every === 0;
    layout.xaxis.tickvals = layout.xaxis.tickvals.filter(keep);
    layout.xaxis.ticktext = layout.xaxis.ticktext.filter(keep);
    return layout;
  };
  const draw = (place) => {
    const figure = resolve(JSON.parse(document.getElementById(place.dataset.figure).textContent));
    delete figure.layout.height; // the style sheet has reserved the room, so nothing jumps while it loads
    return Plotly.react(place, figure.data, fit(figure.layout, place.clientWidth), config);
  };
  addEventListener("DOMContentLoaded", () => {
    document.body.append(probe);
    const places = [...document.querySelectorAll(".chart")];
    for (const place of places) {
      draw(place).then(() => {
        place.on("plotly_click", (event) => {
          const data = event.points[0].customdata;
          if (Array.isArray(data) && typeof data[1] === "string" && data[1].startsWith("/")) location.assign(data[1]);
        });
        place.dataset.drawn = "yes";
      });
    }
    document.addEventListener("themechange", () => places.forEach(draw));
    for (const button of document.querySelectorAll(".copy")) {
      if (!navigator.clipboard) continue;
      button.hidden = false;
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
        button.textContent = "Copied";
      });
    }
  });
})();
