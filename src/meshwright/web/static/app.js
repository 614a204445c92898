"use strict";
// The page: a question, its progress and answer, one knob at a time, two plans compared, files to take away.

const $ = (id) => document.getElementById(id);
const form = $("question"), fit = $("own-plan");
const FACTORS = ["× 0.25", "× 0.5", "× 1", "× 2", "× 4"];
const DEGREES = ["pp", "tp", "cp", "dp_replicate", "dp_shard", "ep"];
let running = null, shown = null;

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick" || name === "onchange") made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function table(head, rows, caption) {
  return element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
    element("table", {},
      element("caption", {}, caption),
      element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell) => (cell instanceof Node && cell.tagName === "TD" ? cell : element("td", {}, cell))))))));
}

async function ask(verb, question) {
  const response = await fetch("/api/" + verb, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(question),
  });
  return { status: response.status, document: await response.json() };
}

// Ask and hear the progress: server-sent events of an answer to a POST.
async function follow(verb, question, signal, heard) {
  const response = await fetch("/api/" + verb, {
    method: "POST", signal, body: JSON.stringify(question),
    headers: { "content-type": "application/json", accept: "text/event-stream" },
  });
  if (!(response.headers.get("content-type") || "").startsWith("text/event-stream")) {
    return { status: response.status, document: await response.json() };
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "", answer = null;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return answer || { status: 500, document: { error: "the server went away" } };
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const [event, body] = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const found = JSON.parse(body.slice(6));
      if (event === "event: progress") heard(found); else answer = found;
    }
  }
}

function asked() {
  const value = (name) => form.elements[name].value.trim();
  const list = (name) => value(name).split(/,\s*(?=[\w.]+=)/).map((part) => part.trim()).filter(Boolean);
  const question = {
    model: value("own_model") || value("model"),
    on: value("own_cluster") || value("device") + " x " + value("count"),
    seq_len: Number(value("seq_len")), global_batch: Number(value("global_batch")),
    stack: value("stack") || "megatron-core", objective: value("objective"),
    keep: list("keep"), forbid: list("forbid"),
  };
  for (const name of ["tokens", "precision", "schedule"]) if (value(name)) question[name] = value(name);
  for (const name of ["budget", "deadline", "encoder_tokens"]) if (value(name)) question[name] = Number(value(name));
  if (value("images")) {
    const [perSequence, tokens] = value("images").split("x").map(Number);
    question.images = { per_sequence: perSequence, tokens };
  }
  return question;
}

function showProblems(document) {
  const place = $("problems");
  place.replaceChildren();
  if (!document) return;
  const lines = (document.problems || []).map((one) => one.field + ": " + one.rule + (one.suggestion ? " — " + one.suggestion : ""));
  place.append(
    element("p", {}, document.error + (document.retry_after_s ? " Try again in " + document.retry_after_s + " s." : "")),
    element("ul", {}, ...[...lines, ...(document.reasons || [])].map((line) => element("li", {}, line))));
  if (document.suggestion) place.append(element("p", {}, "Suggestion: " + document.suggestion));
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  search();
});
$("cancel").addEventListener("click", () => running && running.abort());

async function search() {
  if (running) running.abort();
  const own = (running = new AbortController());
  const kept = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
  history.replaceState(null, "", "?" + kept);
  showProblems(null);
  $("results").replaceChildren();
  $("progress").hidden = false;
  $("cancel").hidden = false;
  $("bar").value = 0;
  $("doing").textContent = "searching …";
  try {
    const answer = await follow("plan", asked(), own.signal, (heard) => {
      $("bar").value = heard.part;
      $("doing").textContent = heard.what;
    });
    if (answer.status !== 200 || answer.document.error) showProblems(answer.document);
    else showAnswer(answer.document, answer.words);
  } catch (error) {
    showProblems({ error: error.name === "AbortError" ? "The search was cancelled." : "The server cannot be reached." });
  } finally {
    if (running === own) {
      running = null;
      $("progress").hidden = true;
      $("cancel").hidden = true;
    }
  }
}

function probability(report) {
  return report.fits_probability === null ? "" : "probability " + report.fits_probability.toFixed(2);
}

function interval(report) {
  return report.step_time_low_s === null ? "" : seconds(report.step_time_low_s) + " to " + seconds(report.step_time_high_s);
}

function reportAddress(plan) {
  const question = { plan, search: false };
  if (form.elements.tokens.value.trim()) question.tokens = form.elements.tokens.value.trim();
  return "/report?question=" + encodeURIComponent(JSON.stringify(question));
}

function openReport(plan) {
  window.open(reportAddress(plan), "_blank", "noopener");
}

function card(title, value, more, kind) {
  return element("div", {}, element("dt", {}, title), element("dd", { class: kind || null }, value, element("small", {}, more || "")));
}

function showAnswer(document_, words) {
  shown = document_;
  const best = document_.plans[0], report = best.predict, memory = report.memory_bytes;
  const cards = element("dl", { class: "figures" },
    card("step time (predicted)", seconds(report.step_time_s), "80 %: " + interval(report)),
    card("tokens per second", Math.round(report.tokens_per_s).toLocaleString("en"), report.mfu === null ? "" : "MFU " + (100 * report.mfu).toFixed(1) + " %"),
    card("memory, fullest device", bytes(memory.total), "of " + bytes(memory.capacity)),
    card("verdict", report.fits ? "fits" : "does not fit", probability(report), report.fits ? "good" : "bad"),
    report.usd_per_step === null ? null : card("money per step", "$" + report.usd_per_step.toFixed(4), "$" + report.usd_per_hour.toFixed(2) + " per hour"),
    report.training && report.training.days ? card("whole training", report.training.days.value.toFixed(1) + " days", report.training.usd ? "$" + Math.round(report.training.usd.value).toLocaleString("en") : "") : null);
  const rows = document_.plans.map((one, at) => [
    element("input", { type: "checkbox", name: "compare", value: String(at), "aria-label": "Compare plan " + (at + 1) }),
    words.plans[at], seconds(one.predict.step_time_s), interval(one.predict), bytes(one.predict.memory_bytes.total),
    one.regret ? (100 * one.regret.p80).toFixed(1) + " %" : "–",
    element("a", { href: reportAddress(one.long || one.plan), target: "_blank", rel: "noopener" }, "report"),
  ]);
  const targets = ["megatron", "bridge", "torchtitan", "deepspeed", "accelerate"];
  $("results").replaceChildren(
    element("section", { "aria-labelledby": "answer-title" },
      element("h2", { id: "answer-title" }, "Answer"),
      element("p", { class: "answer" }, words.plans[0]), cards,
      ...report.remarks.map((one) => element("p", { class: "remark" }, one)),
      table(["", "plan", "step", "80 %", "memory", "regret", ""], rows, "Best plans"),
      element("div", { class: "row" }, element("button", { type: "button", onclick: compareTwo }, "Compare two plans")),
      element("div", { id: "compared", "aria-live": "polite" }),
      element("p", {}, document_.candidates_considered.toLocaleString("en") + " combinations, " + document_.candidates_evaluated.toLocaleString("en") + " plans priced in " + document_.search_time_s.toFixed(1) + " s; " + document_.candidates_tied.toLocaleString("en") + " within " + (100 * (document_.tie_ratio - 1)).toFixed(1) + " % of the fastest.")),
    document_.clusters.length > 1 ? clusters(document_) : null || element("span", {}),
    element("section", { "aria-labelledby": "pareto-title" },
      element("h2", { id: "pareto-title" }, "Time against memory"),
      element("p", {}, "Plans that no other one beats in both. Choose a point to open its report."),
      element("div", { class: "chart", id: "chart-pareto", role: "img", "aria-label": "Step time against memory of plans that none beats in both" }),
      element("details", {}, element("summary", {}, "Plans as a table"),
        table(["plan", "step", "memory", ""], document_.pareto_memory.map((one, at) => [
          words.pareto_memory[at], seconds(one.step_time_s), bytes(one.memory_bytes),
          element("a", { href: reportAddress(one.plan), target: "_blank", rel: "noopener" }, "report"),
        ]), "Pareto set"))),
    knobs(best),
    element("section", { "aria-labelledby": "take-title" },
      element("h2", { id: "take-title" }, "Take it away"),
      element("div", { class: "row" },
        element("button", { type: "button", onclick: () => downloadPlan(best) }, "Download the plan"),
        element("label", {}, "Framework ", element("select", { id: "target" }, ...targets.map((name) => element("option", {}, name)))),
        element("button", { type: "button", onclick: () => exportPlan(best) }, "Export"),
        element("a", { href: reportAddress(best.long || best.plan), target: "_blank", rel: "noopener" }, "Report")),
      element("div", { id: "exported", "aria-live": "polite" })));
  drawPareto(document_, words.pareto_memory);
  fillFit(best.plan);
  $("results").focus({ preventScroll: true });
  document.documentElement.dataset.answered = "yes";
}

function clusters(document_) {
  const money = (row) => (row.usd === null || row.usd === undefined ? "–" : "$" + Math.round(row.usd.value ?? row.usd).toLocaleString("en"));
  return element("section", { "aria-labelledby": "clusters-title" },
    element("h2", { id: "clusters-title" }, "Clusters"),
    table(["cluster", "step", "days", "cost"], document_.clusters.filter((row) => row.state === "searched").map((row) => [
      row.cluster, row.step_time_s === null ? "–" : seconds(row.step_time_s),
      row.days ? Number(row.days.value ?? row.days).toFixed(1) : "–", money(row)]), "Clusters, the best first"));
}

function drawPareto(document_, words) {
  const points = document_.pareto_memory, best = document_.plans[0].predict;
  charts.length = 0;
  chart("chart-pareto", (colours) => ({
    ...base(colours),
    grid: { left: 58, right: 20, top: 36, bottom: 46 },
    legend: { top: 0, textStyle: { color: colours.ink } },
    xAxis: axis(colours, { type: "value", scale: true, name: "step time, seconds", nameLocation: "middle", nameGap: 26 }),
    yAxis: axis(colours, { type: "value", scale: true, name: "GiB on the fullest device", nameLocation: "middle", nameGap: 40 }),
    tooltip: { ...base(colours).tooltip, formatter: (params) => (params.seriesIndex ? "recommended" : words[params.dataIndex].replaceAll(", ", "\n")) + "\n" + seconds(params.value[0]) + ", " + params.value[1].toFixed(2) + " GiB" },
    series: [
      { name: "plans that none beats in both", type: "line", step: "end", symbol: "circle", symbolSize: 11, lineStyle: { type: "dotted" }, data: points.map((one) => [one.step_time_s, one.memory_bytes / 2 ** 30]) },
      { name: "recommended", type: "scatter", symbol: "diamond", symbolSize: 17, itemStyle: { color: COLOURS[5] }, data: [[best.step_time_s, best.memory_bytes.total / 2 ** 30]] },
    ],
  }), (drawn) => drawn.on("click", (params) => openReport(params.seriesIndex ? shown.plans[0].long || shown.plans[0].plan : points[params.dataIndex].plan)));
}

// One knob at a time: the plan with it, and what moves.
function knobs(best) {
  const layout = best.plan.layout;
  const choice = (name, values, own) => element("label", {}, name + " ",
    element("select", { "data-knob": name, onchange: turn }, ...values.map((value) => element("option", { value: String(value), selected: String(value) === String(own) }, String(value)))));
  const powers = (most) => Array.from({ length: Math.floor(Math.log2(most)) + 1 }, (_, at) => 2 ** at);
  const recompute = [].concat(best.plan.recompute).join(",");
  return element("section", { "aria-labelledby": "knobs-title" },
    element("h2", { id: "knobs-title" }, "Turn one knob"),
    element("div", { class: "row" },
      choice("tp", powers(16), layout.tp), choice("micro_batch", powers(16), best.plan.pipeline.micro_batch),
      choice("recompute", [...new Set([recompute, "none", "selective", "full"])], recompute),
      choice("sharding", ["none", "zero1", "zero2", "zero3"], best.plan.sharding),
      choice("network bandwidth", FACTORS, "× 1"), choice("memory bandwidth", FACTORS, "× 1")),
    element("div", { id: "moved", "aria-live": "polite" }));
}

// The product of the degrees is the number of devices: another axis gives what tp takes.
function balancing(layout, tp) {
  const axes = ["dp_shard", "dp_replicate", "cp", "pp"];
  const factor = tp / layout.tp;
  const axis = factor < 1 ? axes.find((name) => layout[name] > 1) || "dp_shard" : axes.find((name) => layout[name] % factor === 0 && layout[name] >= factor);
  return axis && factor !== 1 ? [axis + "=" + layout[axis] / factor] : [];
}

async function turn(event) {
  const best = shown.plans[0], plan = best.plan, name = event.target.dataset.knob, value = event.target.value;
  document.querySelectorAll("[data-knob]").forEach((knob) => {
    if (knob !== event.target) for (const option of knob.options) if (option.defaultSelected) knob.value = option.value;
  });
  const question = { plan, set: [], rates: {} };
  if (value.startsWith("× ")) question.rates = { [name.replace(" ", "_")]: Number(value.slice(2)) };
  else question.set = [name + "=" + value, ...(name === "tp" ? balancing(plan.layout, Number(value)) : [])];
  const { status, document: found } = await ask("predict", question);
  const place = $("moved");
  if (status !== 200 || found.error) {
    place.replaceChildren(element("p", { class: "bad" }, [found.error, ...(found.problems || []).map((one) => one.field + ": " + one.rule)].join(" — ")));
    return;
  }
  const own = best.predict;
  const rows = [["step time", own.step_time_s, found.step_time_s, seconds], ["memory, fullest device", own.memory_bytes.total, found.memory_bytes.total, bytes]];
  for (const part of Object.keys(own.breakdown_s)) {
    if (own.breakdown_s[part] || found.breakdown_s[part]) rows.push([part, own.breakdown_s[part], found.breakdown_s[part] || 0, seconds]);
  }
  place.replaceChildren(
    element("p", {}, (question.set.join(", ").replaceAll("=", " ") || name + " " + value) + ": " + percent(found.step_time_s / own.step_time_s - 1) + " of the step's time, " + (found.fits ? "fits" : "does not fit") + "."),
    table(["figure", "as recommended", "changed", "difference"], rows.map(([what, before, after, format]) => [
      what, format(before), element("td", { class: before === after ? null : "changed" }, format(after)), before ? percent(after / before - 1) : "–"]), "What moves"),
    ...found.remarks.slice(0, 3).map((one) => element("p", { class: "remark" }, one)));
}

async function compareTwo() {
  const chosen = [...document.querySelectorAll("input[name=compare]:checked")].map((one) => shown.plans[Number(one.value)]);
  const place = $("compared");
  if (chosen.length !== 2) {
    place.replaceChildren(element("p", {}, "Choose two plans of the table first."));
    return;
  }
  const [a, b] = chosen.map((one) => one.long || one.plan);
  const { status, document: found } = await ask("explain", { plan: a, against: b });
  place.replaceChildren(...(status === 200 && found.summary
    ? [element("ul", { class: "plain" }, ...[...found.summary, ...found.against.lines].map((line) => element("li", {}, line)))]
    : [element("p", { class: "bad" }, found.error)]));
}

function save(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  const link = element("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

async function downloadPlan(best) {
  const response = await fetch("/plan.yaml", {
    method: "POST", headers: { "content-type": "application/json" },
    body: JSON.stringify({ plan: best.long || best.plan, to: "megatron" }),
  });
  save("plan.yaml", await response.text());
}

async function exportPlan(best) {
  const { status, document: found } = await ask("export", { plan: best.long || best.plan, to: $("target").value });
  const place = $("exported");
  if (status !== 200 || !found.files) {
    place.replaceChildren(element("ul", { class: "plain" }, ...[found.error, ...(found.problems || []).map((one) => one.field + ": " + one.rule + " — " + one.suggestion)].map((line) => element("li", {}, line))));
    return;
  }
  place.replaceChildren(...Object.entries(found.files).map(([name, text]) => element("details", {},
    element("summary", {}, name),
    element("button", { type: "button", onclick: () => save(name.split("/").at(-1), text) }, "Download " + name),
    element("pre", { tabindex: "0" }, text))));
}

function fillFit(plan) {
  for (const name of DEGREES) fit.elements[name].value = plan.layout[name];
  fit.elements.micro_batch.value = plan.pipeline.micro_batch;
  fit.elements.sharding.value = plan.sharding;
}

fit.addEventListener("submit", async (event) => {
  event.preventDefault();
  const question = asked(), value = (name) => fit.elements[name].value;
  const degrees = Object.fromEntries(DEGREES.map((name) => [name, Number(value(name))]));
  const plan = {
    plan: 1, model: question.model, cluster: question.on, stack: question.stack, layout: degrees,
    workload: { seq_len: question.seq_len, global_batch: question.global_batch, encoder_tokens: question.encoder_tokens, images: question.images },
    sharding: value("sharding"), recompute: value("recompute"), pipeline: { micro_batch: Number(value("micro_batch")) },
  };
  const { status, document: found } = await ask("predict", { plan });
  const place = $("fit-answer");
  if (status !== 200 || found.error) {
    place.replaceChildren(element("ul", { class: "plain" }, ...[found.error, ...(found.problems || []).map((one) => one.field + ": " + one.rule + (one.suggestion ? " — " + one.suggestion : ""))].map((line) => element("li", {}, line))));
    return;
  }
  const memory = found.memory_bytes, kinds = ["parameters", "gradients", "optimizer", "activations", "working", "buffers", "workspace"];
  place.replaceChildren(
    element("p", { class: found.fits ? "good" : "bad" }, (found.fits ? "It fits" : "It does not fit") + ": " + bytes(memory.total) + " of " + bytes(memory.usable) + " usable" + (found.fits_probability === null ? "." : ", " + probability(found) + ".")),
    element("div", { class: "chart low", id: "chart-fit", role: "img", "aria-label": "Memory of the fullest device by kind" }),
    table(["kind", "bytes"], kinds.filter((kind) => memory[kind]).map((kind) => [kind, bytes(memory[kind])]), "Memory of the fullest device"));
  chart("chart-fit", (colours) => ({
    ...base(colours),
    legend: { top: 0, type: "scroll", textStyle: { color: colours.ink } },
    grid: { left: 8, right: 24, top: 34, bottom: 30 },
    xAxis: axis(colours, { type: "value", max: Math.max(memory.capacity, memory.total) / 2 ** 30, axisLabel: { formatter: "{value} GiB", showMaxLabel: false } }),
    yAxis: { type: "category", data: [""], show: false },
    series: kinds.filter((kind) => memory[kind]).map((kind, at) => ({ name: kind, type: "bar", stack: "memory", barWidth: 26, itemStyle: { color: COLOURS[at] }, data: [memory[kind] / 2 ** 30] })),
  }));
});

async function start() {
  const found = await (await fetch("/api/catalogue")).json();
  const option = (value, label) => element("option", label ? { value, label } : { value });
  $("models").append(...found.models.map((one) => option(one.name, (one.parameters / 1e9).toFixed(1) + " B parameters")));
  $("devices").append(...found.devices.map((one) => option(one.id, (one.memory_bytes / 2 ** 30).toFixed(0) + " GiB")));
  $("stacks").append(...found.stacks.map((one) => element("option", { value: one.name, selected: one.name === "megatron-core" }, one.name)));
  const given = new URLSearchParams(location.search);
  for (const [name, value] of given) if (form.elements[name]) form.elements[name].value = value;
  document.documentElement.dataset.ready = "yes";
  if (given.get("model")) search();
}

start();
