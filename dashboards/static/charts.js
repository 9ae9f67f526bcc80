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
  // Buttons instead of a drawn legend: they can be reached and pressed with the keyboard, and say whether they are on.
  const key = (place, figure) => {
    const named = figure.data.filter((trace) => trace.legendgroup && trace.showlegend !== false);
    const meta = figure.layout.meta || {};
    if (place.previousElementSibling?.classList.contains("chart-key")) place.previousElementSibling.remove();
    if (!named.length) return;
    const bar = document.createElement("div");
    bar.className = "chart-key";
    const add = (text, colour, on, act) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.setAttribute("aria-pressed", String(on));
      if (colour) button.style.setProperty("--key", colour);
      button.addEventListener("click", () => {
        const now = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(now));
        act(now);
      });
      bar.append(button);
    };
    for (const trace of named) {
      add(trace.name, trace.line.color, true, (on) => {
        const mine = place.data.flatMap((one, index) => (one.legendgroup === trace.legendgroup ? [index] : []));
        Plotly.restyle(place, { visible: on }, mine);
      });
    }
    if (meta.outside) {
      add(`show ${meta.outside} outside the axis`, null, false, (on) =>
        Plotly.relayout(place, on ? { "xaxis.autorange": true } : { "xaxis.range": [...meta.range] }));
    }
    place.before(bar);
  };
  const reachable = (place) => {
    for (const button of place.querySelectorAll(".modebar-btn")) {
      button.tabIndex = 0;
      button.setAttribute("role", "button");
      button.setAttribute("aria-label", button.dataset.title || "");
      button.onkeydown = (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        button.click();
      };
    }
  };
  const config = { displaylogo: false, displayModeBar: "hover", responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
  const fit = (layout, width) => {
    if (width > 560 || !layout.xaxis || !layout.xaxis.tickvals) return layout;
    const every = Math.ceil(layout.xaxis.tickvals.length / 4);
    const keep = (_, index) => index % every === 0;
    layout.xaxis.tickvals = layout.xaxis.tickvals.filter(keep);
    layout.xaxis.ticktext = layout.xaxis.ticktext.filter(keep);
    layout.xaxis.tickangle = -35; // beside each other they would run together
    return layout;
  };
  const draw = (place) => {
    const figure = resolve(JSON.parse(document.getElementById(place.dataset.figure).textContent));
    delete figure.layout.height; // the style sheet has reserved the room, so nothing jumps while it loads
    key(place, JSON.parse(document.getElementById(place.dataset.figure).textContent));
    return Plotly.react(place, figure.data, fit(figure.layout, place.clientWidth), config).then(() => reachable(place));
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
