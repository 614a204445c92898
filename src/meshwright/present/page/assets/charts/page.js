"use strict";
// The data of the page, its tables, and the simulated step.

const data = JSON.parse(document.getElementById("report-data").textContent);

// Tables are folded on screen and open on paper.
window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));

// Columns that hold differences, as values.
function running(differences) {
  const values = new Float64Array(differences.length);
  let sum = 0;
  for (let at = 0; at < differences.length; at++) values[at] = sum += differences[at];
  return values;
}

// The simulated step is packed: gzip, then base64.
async function simulatedStep() {
  const packed = document.getElementById("step-data");
  if (!packed) return null;
  const raw = Uint8Array.from(atob(packed.textContent), (sign) => sign.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}
