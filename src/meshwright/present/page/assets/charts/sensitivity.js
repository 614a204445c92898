"use strict";
// How the step's time answers to half and twice of each rate of the cluster, and to other numbers of devices.

function drawSensitivity() {
  const own = data.predict.step_time_s;
  const rates = data.explain.sensitivity.map((one) => ({
    name: one.resource.replaceAll("_", " "),
    change: (factor) => {
      const found = one.changes.find((change) => change.factor === factor);
      return found && found.step_time_s !== null ? found.step_time_s / own - 1 : null;
    },
  }));
  const devices = data.explain.devices || [];
  if (devices.some((one) => one.fits)) {
    rates.push({
      name: "devices (same batch)",
      change: (factor) => {
        const found = devices.find((one) => one.factor === factor && one.fits);
        return found ? found.step_time_s / own - 1 : null;
      },
    });
  }
  rates.reverse();
  const place = document.getElementById("chart-sensitivity");
  if (!place || !rates.length) return;
  place.style.height = rates.length * 46 + 84 + "px";
  chart("chart-sensitivity", (colours) => ({
    ...base(colours),
    grid: { left: 138, right: 64, top: 32, bottom: 44 },
    legend: { top: 0, textStyle: { color: colours.ink } },
    xAxis: axis(colours, { type: "value", axisLabel: { formatter: (value) => percent(value) }, name: "change of the step's time", nameLocation: "middle", nameGap: 26 }),
    yAxis: axis(colours, { type: "category", data: rates.map((one) => one.name), splitLine: { show: false } }),
    tooltip: { ...base(colours).tooltip, formatter: (params) => params.seriesName + " of " + params.name + "\n" + percent(params.value) + " of the step's time" },
    series: [[0.5, "half", COLOURS[1]], [2, "twice", COLOURS[2]]].map(([factor, name, color]) => ({
      name, type: "bar", barMaxWidth: 15, itemStyle: { color }, data: rates.map((one) => one.change(factor)),
      label: { show: true, position: "right", color: colours.ink, fontSize: 11, formatter: (params) => (params.value === null || params.value === undefined ? "" : percent(params.value)) },
    })),
  }));
}
