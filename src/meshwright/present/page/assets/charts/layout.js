"use strict";
// The devices of the plan on their nodes: pipeline ranks as columns; one colour for each group of the chosen axis.

function drawLayout() {
  const layout = data.layout;
  if (!layout) return;
  const columns = layout.pipeline_ranks;
  const rows = Math.max(...columns.map((column) => column.nodes.length + (column.further_nodes ? 1 : 0)));
  const perRow = Math.min(8, Math.max(...columns.flatMap((column) => column.nodes.map((node) => node.devices.length))));
  const lines = Math.ceil(
    Math.max(...columns.flatMap((column) => column.nodes.map((node) => node.devices.length))) / perRow);
  const axes = layout.axes.map((one) => one.axis);
  const meshes = Object.fromEntries(layout.axes.map((one) => [one.axis, one.mesh]));
  const gaps = columns.map((column) => (column.like ? 1.55 : 1));
  const total = gaps.reduce((a, b) => a + b, 0);
  let chosen = axes[0] || "tp";

  // Devices of one group have the same indices along all other axes of its mesh; neighbouring groups differ in colour.
  function colourOf(device) {
    const mesh = axes.filter((name) => name !== "pp" && meshes[chosen] === meshes[name]);
    let number = 0;
    for (const name of mesh.reverse()) {
      if (name === chosen) continue;
      const size = layout.axes.find((one) => one.axis === name).size;
      number = number * size + device[name];
    }
    return COLOURS[number % COLOURS.length];
  }

  function words(device) {
    return axes.map((name) => name + " " + device[name]).join(", ");
  }

  const place = document.getElementById("chart-layout");
  const cell = 34 + 16 * lines;
  place.style.minWidth = 64 * total + 8 + "px";
  place.style.height = 46 + rows * (cell + 8) - (columns.some((column) => column.further_nodes) ? cell - 18 : 0) + "px";

  chart("chart-layout", (colours, width) => {
    const unit = Math.max((width - 8) / total, 64);
    const items = [];
    let left = 4;
    columns.forEach((column, at) => {
      const own = unit - 8;
      const stages = column.stages.length > 1 ? "stages " + column.stages.slice(0, 3).join(", ") + (column.stages.length > 3 ? ", …" : "") : "stage " + column.stages[0];
      items.push({ left, width: own, head: ["pp " + column.pipeline_rank, stages, column.layers + (column.layers === 1 ? " layer" : " layers")] });
      column.nodes.forEach((node, row) => items.push({ left, width: own, row, node }));
      if (column.further_nodes) items.push({ left, width: own, row: column.nodes.length, more: column.further_nodes });
      left += unit;
      if (column.like) {
        items.push({ left, width: unit * 0.55 - 8, like: column.like });
        left += unit * 0.55;
      }
    });
    const text = (words, x, y, more) => ({
      type: "text", silent: true,
      style: { text: words, x, y, fill: colours.ink, fontSize: 11, lineHeight: 13, fontFamily: "system-ui, sans-serif", overflow: "truncate", ...more },
    });
    return {
      ...base(colours),
      xAxis: { show: false, min: 0, max: 1 },
      yAxis: { show: false, min: 0, max: 1 },
      grid: { left: 0, right: 0, top: 0, bottom: 0 },
      tooltip: { ...base(colours).tooltip, formatter: (params) => items[params.dataIndex].node ? nodeWords(items[params.dataIndex].node) : "" },
      series: [{
        type: "custom",
        data: items.map(() => [0, 0]),
        clip: false,
        renderItem: (params) => {
          const item = items[params.dataIndex];
          const top = 44 + (item.row || 0) * (cell + 8);
          const children = [];
          if (item.head) {
            item.head.forEach((line, at) => children.push(
              text(line, item.left, 2 + at * 13, { width: item.width, fontWeight: at ? "normal" : "bold", fill: at ? colours.faint : colours.ink })));
          } else if (item.like) {
            children.push(text("… " + item.like + " more like\nthe one to the left", item.left, 46, { width: item.width, fill: colours.faint, overflow: "break" }));
          } else if (item.more) {
            children.push(text("+" + item.more.toLocaleString("en") + (item.width > 76 ? " more nodes" : " nodes"), item.left, top + 2, { fill: colours.faint, width: item.width }));
          } else {
            children.push({
              type: "rect", shape: { x: item.left, y: top, width: item.width, height: cell, r: 4 },
              style: { fill: colours.card, stroke: colours.line, lineWidth: 1 },
            });
            children.push(text((item.width > 76 ? "node " : "") + item.node.node.toLocaleString("en"), item.left + 6, top + 4, { width: item.width - 8, fill: colours.faint }));
            const step = (item.width - 8) / perRow;
            item.node.devices.forEach((device, at) => children.push({
              type: "rect",
              shape: {
                x: item.left + 5 + (at % perRow) * step, y: top + 20 + Math.floor(at / perRow) * 16,
                width: Math.max(2, step - 2), height: 14,
              },
              style: { fill: colourOf(device) },
              silent: true,
            }));
          }
          return { type: "group", children };
        },
      }],
    };
  });

  function nodeWords(node) {
    const lines = node.devices.slice(0, 16).map((device) => "device " + device.device + ": " + words(device));
    return ["node " + node.node, ...lines, ...(node.devices.length > 16 ? ["…"] : [])].join("\n");
  }

  document.querySelectorAll("input[name=layout-axis]").forEach((input) => input.addEventListener("change", () => {
    chosen = input.value;
    charts.find((one) => one.drawn.getDom().id === "chart-layout").draw();
  }));
}
