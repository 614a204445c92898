"use strict";
// Draw all charts of the page; the page says so when it is done.

drawLayout();
drawTime();
drawNeighbours();
drawPareto();
drawSensitivity();
simulatedStep().then((step) => {
  drawTimeline(step);
  drawMemory(step);
  document.documentElement.dataset.drawnMs = performance.now().toFixed(0);
  document.documentElement.dataset.drawn = "yes";
});
