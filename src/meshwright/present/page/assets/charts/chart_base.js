"use strict";
// What all charts share: colours of the theme, units, and the life of a chart. page_scripts.py defines COLOURS.

function theme() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  return { ink: value("--ink"), faint: value("--faint"), line: value("--line"), paper: value("--paper"), card: value("--card") };
}

function seconds(value) {
  const size = Math.abs(value);
  if (size >= 100) return value.toFixed(1) + " s";
  if (size >= 1) return value.toFixed(3) + " s";
  if (size >= 1e-3) return (value * 1e3).toFixed(3) + " ms";
  return (value * 1e6).toFixed(2) + " µs";
}

function bytes(value) {
  for (const [size, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (Math.abs(value) >= size) return (value / size).toFixed(2) + " " + name;
  }
  return value.toFixed(0) + " B";
}

function percent(value) {
  return (value > 0 ? "+" : value < 0 ? "−" : "") + Math.abs(value * 100).toFixed(1) + " %";
}

// Common parts of all options: no animation, text of the theme, tooltips on the canvas.
function base(colours) {
  return {
    animation: false,
    backgroundColor: "transparent",
    textStyle: { color: colours.ink, fontFamily: "system-ui, sans-serif" },
    tooltip: {
      renderMode: "richText", confine: true, backgroundColor: colours.card, borderColor: colours.line,
      textStyle: { color: colours.ink, fontSize: 12, lineHeight: 16 },
    },
    color: COLOURS,
  };
}

function axis(colours, more) {
  const lines = {
    axisLine: { lineStyle: { color: colours.line } },
    axisLabel: { color: colours.ink },
    nameTextStyle: { color: colours.ink },
    splitLine: { lineStyle: { color: colours.line, opacity: 0.6 } },
  };
  const labels = { hideOverlap: true, ...lines.axisLabel, ...(more.axisLabel || {}) };
  return { ...lines, ...more, axisLabel: labels };
}

const charts = [];

// Draw a chart where the page has a place for it; draw it again when theme or width change.
function chart(id, option, ready) {
  const place = document.getElementById(id);
  if (!place) return null;
  const drawn = echarts.init(place, null, { renderer: "canvas" });
  const one = { drawn, draw: () => drawn.setOption(option(theme(), place.clientWidth), { notMerge: true }) };
  one.draw();
  let width = place.clientWidth;
  new ResizeObserver(() => {
    if (place.clientWidth === width) return;
    width = place.clientWidth;
    drawn.resize();
    one.draw();
  }).observe(place);
  charts.push(one);
  if (ready) ready(drawn);
  return one;
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((one) => one.draw()));
