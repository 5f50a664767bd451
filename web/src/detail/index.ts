// The plots of one run, in the order of the page: all of them follow the run that is focused.
import type { Panel } from "../frame";
import type { Plot } from "../scene";
import type { Store } from "../state";
import { doctorPanel } from "./doctor";
import { Focus } from "./focus";
import { heatPlot } from "./heat";
import { histogramPlot } from "./histograms";
import { memoryPlot } from "./memory";
import { networkPlot } from "./network";
import { overflowPlot } from "./overflow";
import { shiftedPlot } from "./shifted";

// What is drawn: needs no browser.
export function drawnPlots(focus: Focus): Plot[] {
  return [
    heatPlot(focus), overflowPlot(focus), memoryPlot(focus), histogramPlot(focus),
    shiftedPlot(focus), networkPlot(focus),
  ];
}

export function detailPlots(store: Store): (Plot | Panel)[] {
  const focus = new Focus(store);
  return [...drawnPlots(focus), doctorPanel(focus)];
}
