"use strict";
// The parts of a step's time, nested: the step, its parts, and the kernels of compute.

// Lighter tones of the colour of compute, for its kernels.
const TINTS = ["#8fc1de", "#b4d5e8", "#cfe4f0", "#e2eff7"];

function drawTime() {
  const time = data.explain.time;
  const kernels = time.kernels_s
    ? Object.entries(time.kernels_s).filter(([, value]) => value > 0).map(([name, value], at) => ({ name: name.replaceAll("_", " "), value, itemStyle: { color: TINTS[at % TINTS.length] } }))
    : [];
  const parts = time.parts.map((part, at) => ({
    name: part.part, value: part.seconds, itemStyle: { color: COLOURS[at % COLOURS.length] },
    children: part.key === "compute" && kernels.length ? kernels : undefined,
  }));
  chart("chart-time", (colours) => ({
    ...base(colours),
    tooltip: {
      ...base(colours).tooltip,
      formatter: (params) => params.name + "\n" + seconds(params.value) + ", " + ((100 * params.value) / time.step_time_s).toFixed(1) + " % of the step",
    },
    series: [{
      type: "treemap", data: parts, roam: false, nodeClick: false, breadcrumb: { show: false },
      left: 0, right: 0, top: 0, bottom: 0, leafDepth: null, visibleMin: 0,
      upperLabel: { show: true, height: 22, color: "#ffffff", fontWeight: "bold", formatter: label },
      label: { color: "#000000", fontSize: 12, lineHeight: 15, formatter: lines, overflow: "truncate" },
      itemStyle: { borderColor: colours.paper, borderWidth: 1, gapWidth: 1 },
      levels: [{ itemStyle: { gapWidth: 2, borderWidth: 0 }, upperLabel: { show: false } }, { itemStyle: { borderWidth: 2, gapWidth: 1, borderColor: "#00456b" } }],
    }],
  }));

  function lines(params) {
    return label(params).replaceAll("  ", "\n");
  }

  function label(params) {
    return params.name + "  " + seconds(params.value) + "  " + ((100 * params.value) / time.step_time_s).toFixed(1) + " %";
  }
}
