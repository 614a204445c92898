"use strict";
// The simulated step: a band for each pipeline rank, with a lane for each of its streams. All actions in view are
// drawn, those of one colour of a lane as one shape; nothing is sampled.

const OTHER_ACTION = "#999999";
const ACTION_WORDS = {
  F: "forward", B: "backward", I: "backward, input", W: "backward, weights", SEND_F: "send forward", SEND_B: "send backward",
  GATHER: "gather parameters", REDUCE: "reduce gradients", NORM: "gradient norm", STEP: "optimizer step",
  S: "logits", T: "gradients of logits", E: "embedding", D: "gradients of the embedding",
};

const Actions = echarts.graphic.extendShape({
  shape: { boxes: [] },
  buildPath: (path, shape) => {
    const boxes = shape.boxes;
    for (let at = 0; at < boxes.length; at += 4) path.rect(boxes[at], boxes[at + 1], boxes[at + 2], boxes[at + 3]);
  },
});
echarts.graphic.registerShape("actions", Actions);

function drawTimeline(step) {
  const place = document.getElementById("chart-timeline");
  if (!place || !step) return;
  const { bodies, ranks, unit_s: unit } = step.timeline;
  const bands = ranks.map((rank) => rank.streams.map((stream) => ({ ...stream, start: running(stream.start) })));
  const end = Math.max(...bands.flat().map((lane) => lane.start.at(-1) + bodies[lane.body.at(-1)].duration)) * unit;
  const band = Math.max(20, Math.min(44, 560 / ranks.length));
  place.style.height = ranks.length * band + 96 + "px";
  let pointer = [0, 0];

  // The first action of a lane that ends behind a time.
  function firstBehind(lane, ticks) {
    let low = 0, high = lane.body.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (lane.start[middle] + bodies[lane.body[middle]].duration < ticks) low = middle + 1; else high = middle;
    }
    return low;
  }

  function laneBox(lanes, at, height) {
    const own = lanes.length === 1 ? height : at === 0 ? height * 0.6 : (height * 0.4) / (lanes.length - 1);
    return [at === 0 ? 0 : height * 0.6 + (at - 1) * own, own];
  }

  function found(drawn, rank) {
    const [x, y] = pointer;
    const time = drawn.convertFromPixel({ xAxisIndex: 0 }, x) / unit;
    const middle = drawn.convertToPixel({ yAxisIndex: 0 }, rank);
    const lanes = bands[rank];
    const height = band * 0.86;
    const at = lanes.findIndex((_, lane) => {
      const [top, own] = laneBox(lanes, lane, height);
      return y - (middle - height / 2) >= top && y - (middle - height / 2) <= top + own;
    });
    if (at < 0) return "";
    const lane = lanes[at], where = firstBehind(lane, time);
    const lead = "pipeline rank " + ranks[rank].rank + ", " + lane.stream;
    if (where >= lane.body.length || lane.start[where] > time) return lead + "\nidle";
    const body = bodies[lane.body[where]], batch = lane.micro_batch[where];
    const lines = [lead, (ACTION_WORDS[body.action] || body.action)
      + (body.stage === null ? "" : ", stage " + body.stage) + (batch < 0 ? "" : ", micro-batch " + batch)];
    lines.push(seconds(body.duration * unit) + " from " + seconds(lane.start[where] * unit));
    if (body.bytes) lines.push(bytes(body.bytes));
    for (const [part, value] of Object.entries(body.parts_s)) lines.push("  " + (data.words.parts[part] || part) + " " + seconds(value));
    return lines.join("\n");
  }

  function boxes(lanes, view, height) {
    const shapes = [];
    lanes.forEach((lane, at) => {
      const [top, own] = laneBox(lanes, at, height);
      const colours = new Map();
      for (let where = firstBehind(lane, view.from); where < lane.body.length && lane.start[where] <= view.to; where++) {
        const body = bodies[lane.body[where]];
        const colour = data.words.action_colours[body.action] || OTHER_ACTION;
        const left = Math.max(view.left, view.x(lane.start[where]));
        const right = Math.min(view.right, view.x(lane.start[where] + body.duration));
        if (!colours.has(colour)) colours.set(colour, []);
        const gap = right - left > 3 ? 0.6 : 0;
        colours.get(colour).push(left, view.top + top, Math.max(right - left - gap, 0.15), own - 0.6);
      }
      for (const [fill, list] of colours) {
        shapes.push({ type: "actions", silent: true, shape: { boxes: list }, style: { fill }, transition: [] });
      }
    });
    return shapes;
  }

  chart("chart-timeline", (colours) => ({
    ...base(colours),
    grid: { left: 52, right: 16, top: 8, bottom: 72 },
    xAxis: axis(colours, { type: "value", min: 0, max: end, name: "seconds (simulated)", nameLocation: "middle", nameGap: 24, axisLabel: { showMaxLabel: false } }),
    yAxis: axis(colours, {
      type: "category", inverse: true, data: ranks.map((rank) => "pp " + rank.rank), splitLine: { show: false },
      axisLabel: { interval: Math.ceil(16 / band) - 1, fontSize: 11 },
    }),
    dataZoom: [
      { type: "inside", filterMode: "none", minValueSpan: end / 1e5 },
      { type: "slider", filterMode: "none", bottom: 8, height: 22, showDataShadow: false, textStyle: { color: colours.ink }, labelFormatter: (value) => seconds(value) },
    ],
    tooltip: { ...base(colours).tooltip, trigger: "item", formatter: (params) => found(echarts.getInstanceByDom(place), params.dataIndex) },
    series: [{
      type: "custom",
      clip: true,
      encode: { x: [0, 1], y: 2 },
      data: ranks.map((_, at) => [0, end, at]),
      renderItem: (params, api) => {
        const at = params.dataIndex, frame = params.coordSys;
        const [origin, middle] = api.coord([0, at]);
        const scale = api.coord([1, at])[0] - origin;
        const height = band * 0.86, top = middle - height / 2;
        const view = {
          left: frame.x, right: frame.x + frame.width, top,
          from: (frame.x - origin) / scale / unit, to: (frame.x + frame.width - origin) / scale / unit,
          x: (ticks) => origin + ticks * unit * scale,
        };
        return {
          type: "group",
          children: [
            { type: "rect", shape: { x: frame.x, y: top, width: frame.width, height }, style: { fill: colours.line, opacity: 0.25 } },
            ...boxes(bands[at], view, height),
          ],
        };
      },
    }],
  }), (drawn) => drawn.getZr().on("mousemove", (event) => { pointer = [event.offsetX, event.offsetY]; }));
}
