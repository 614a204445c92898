"use strict";
// Memory of one pipeline rank's device over a simulated step, stacked by kind, against what a device has.

function drawMemory(step) {
  const select = document.getElementById("memory-rank");
  if (!select || !step) return;
  const memory = data.predict.memory_bytes, unit = step.timeline.unit_s;
  const curves = step.memory.map((one) => ({ ...one, time: running(one.time), activations: running(one.activations) }));

  const most = 1.06 * Math.max(memory.capacity, memory.total) / 2 ** 30;
  const interval = [1, 2, 4, 8, 16, 32, 64, 128].find((size) => most / size <= 7) || 256;
  const top = Math.ceil(most / interval) * interval;
  const drawn = chart("chart-memory", (colours) => {
    const curve = curves[Number(select.value)];
    const end = step.timeline.step_time_s;
    const times = [...curve.time].map((ticks) => ticks * unit);
    if (times.at(-1) < end) times.push(end);
    const activations = [...curve.activations];
    if (activations.length < times.length) activations.push(activations.at(-1));
    const kinds = Object.entries(curve.held).filter(([, held]) => held > 0);
    const area = (name, values) => ({
      name, type: "line", stack: "held", step: "end", symbol: "none", lineStyle: { width: 0 },
      areaStyle: { color: data.words.kind_colours[name], opacity: 0.9 }, itemStyle: { color: data.words.kind_colours[name] },
      data: values, emphasis: { disabled: true },
    });
    const limit = (name, value, type) => ({
      name, yAxis: value, lineStyle: { color: colours.ink, type },
      label: { formatter: name + " " + bytes(value), position: "insideEndTop", color: colours.ink, textBorderColor: colours.paper, textBorderWidth: 2 },
    });
    const series = kinds.map(([name, held]) => area(name, times.map((time) => [time, held])));
    series.push(area("activations", times.map((time, at) => [time, activations[at]])));
    series[0].markLine = {
      symbol: "none", silent: true, animation: false,
      data: [limit("a device has", memory.capacity, "solid"), limit("usable", memory.usable, "dashed")],
    };
    return {
      ...base(colours),
      legend: { top: 0, textStyle: { color: colours.ink }, type: "scroll", icon: "rect" },
      grid: { left: 64, right: 20, top: 40, bottom: 72 },
      xAxis: axis(colours, { type: "value", min: 0, max: end, name: "seconds (simulated)", nameLocation: "middle", nameGap: 24, axisLabel: { showMaxLabel: false } }),
      yAxis: axis(colours, {
        type: "value", min: 0, max: top * 2 ** 30, interval: interval * 2 ** 30,
        axisLabel: { formatter: (value) => (value / 2 ** 30).toFixed(0) + " GiB" },
      }),
      dataZoom: [
        { type: "inside", filterMode: "none" },
        { type: "slider", filterMode: "none", bottom: 8, height: 22, showDataShadow: false, textStyle: { color: colours.ink }, labelFormatter: (value) => seconds(value) },
      ],
      tooltip: {
        ...base(colours).tooltip, trigger: "axis",
        formatter: (items) => {
          const total = items.reduce((sum, item) => sum + item.value[1], 0);
          return ["at " + seconds(items[0].value[0]) + ": " + bytes(total), ...items.map((item) => item.seriesName + " " + bytes(item.value[1]))].join("\n");
        },
      },
      series,
    };
  });
  select.addEventListener("change", () => drawn.draw());
}
