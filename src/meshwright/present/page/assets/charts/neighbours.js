"use strict";
// What one other choice does to the step's time, the best first; plans that do not fit are hatched.

function drawNeighbours() {
  const explained = data.explain;
  if (!explained.choices) return;
  const others = [...explained.choices, ...explained.schedule.others]
    .map((one) => ({
      name: Object.entries(one.changes).map(([key, [before, after]]) => key + " " + shown(before) + " → " + shown(after)).join(", "),
      ...one,
    }))
    .sort((a, b) => b.ratio - a.ratio);
  const place = document.getElementById("chart-neighbours");
  if (!place) return;
  place.style.height = others.length * 22 + 60 + "px";

  function shown(value) {
    return typeof value === "string" || typeof value === "number" ? String(value) : typeof value === "boolean" ? (value ? "on" : "off") : Array.isArray(value) ? value.join(",") : (value && value.name) || JSON.stringify(value);
  }

  chart("chart-neighbours", (colours, width) => {
    const labels = Math.min(260, width * 0.42);
    return {
      ...base(colours),
      grid: { left: labels, right: 64, top: 8, bottom: 44 },
      xAxis: axis(colours, { type: "value", axisLabel: { formatter: (value) => percent(value) }, name: "change of the step's time", nameLocation: "middle", nameGap: 26 }),
      yAxis: axis(colours, {
        type: "category", data: others.map((one) => one.name), splitLine: { show: false },
        axisLabel: { width: labels - 12, overflow: "truncate", interval: 0, fontSize: 11 },
      }),
      tooltip: { ...base(colours).tooltip, formatter: (params) => wrapped(others[params.dataIndex].text) },
      series: [{
        type: "bar", barMaxWidth: 14,
        data: others.map((one) => ({
          value: one.ratio - 1,
          itemStyle: one.fits
            ? { color: one.ratio > 1 ? "#e69f00" : "#009e73" }
            : { color: "#999999", decal: { symbol: "rect", dashArrayX: [1, 0], dashArrayY: [2, 4], rotation: -Math.PI / 4, color: colours.ink } },
        })),
        label: {
          show: true, position: "right", color: colours.ink, fontSize: 11,
          formatter: (params) => (others[params.dataIndex].fits ? percent(others[params.dataIndex].ratio - 1) : "does not fit"),
        },
      }],
    };
  });
}

function wrapped(text) {
  return text.replace(/(.{60,80}?) /g, "$1\n");
}
