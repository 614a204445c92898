"use strict";
// Plans that no other one beats in step time and memory, and where this plan is.

function drawPareto() {
  const points = data.pareto_memory;
  if (!points || !points.length) return;
  const own = { step_time_s: data.predict.step_time_s, memory_bytes: data.predict.memory_bytes.total };
  const most = Math.max(...points.map((one) => one.step_time_s), own.step_time_s);
  const least = Math.min(...points.map((one) => one.step_time_s), own.step_time_s);
  const view = { startValue: least - 0.05 * (Math.min(most, 3 * least) - least), endValue: 1.02 * Math.min(most, 3 * least) };
  const gib = (one) => one.memory_bytes / 2 ** 30;
  chart("chart-pareto", (colours) => ({
    ...base(colours),
    grid: { left: 56, right: 24, top: 40, bottom: 76 },
    legend: { top: 0, textStyle: { color: colours.ink } },
    xAxis: axis(colours, { type: "value", name: "step time, seconds", nameLocation: "middle", nameGap: 24, scale: true, axisLabel: { formatter: (value) => Number(value.toPrecision(4)).toString() } }),
    yAxis: axis(colours, { type: "value", name: "GiB on the fullest device", nameLocation: "middle", nameGap: 38, scale: true }),
    dataZoom: [
      { type: "inside", filterMode: "none", ...view },
      { type: "slider", filterMode: "none", bottom: 6, height: 20, ...view, showDataShadow: false, textStyle: { color: colours.ink }, labelFormatter: (value) => seconds(value) },
    ],
    tooltip: {
      ...base(colours).tooltip, trigger: "item",
      formatter: (params) => params.seriesIndex === 1
        ? "this plan\n" + seconds(own.step_time_s) + ", " + bytes(own.memory_bytes)
        : data.words.pareto[params.dataIndex].replaceAll(", ", "\n") + "\n" + seconds(points[params.dataIndex].step_time_s) + ", " + bytes(points[params.dataIndex].memory_bytes),
    },
    series: [
      {
        name: "plans that none beats in both", type: "line", step: "end", symbol: "circle", symbolSize: 9, lineStyle: { type: "dotted", color: COLOURS[0] },
        itemStyle: { color: COLOURS[0] }, data: points.map((one) => [one.step_time_s, gib(one)]),
      },
      { name: "this plan", type: "scatter", symbol: "diamond", symbolSize: 16, itemStyle: { color: COLOURS[5] }, data: [[own.step_time_s, gib(own)]] },
    ],
  }));
}
