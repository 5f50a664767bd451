// The plots of one run alone on a page: ?run=ID&tensor=NAME&step=N choose what they show.
import "../src/style.css";
import type { Report } from "../src/data";
import { detailPlots } from "../src/detail";
import { el } from "../src/dom";
import { mount } from "../src/frame";
import { Store } from "../src/state";

const text = document.getElementById("document")?.textContent ?? "";
const store = new Store(JSON.parse(text) as Report);
const chosen = new URLSearchParams(location.search);
const main = el("main", {});
document.body.append(main);
for (const item of detailPlots(store)) mount(item, store, main);
if (chosen.get("run")) store.focus(chosen.get("run") ?? "");
if (chosen.get("tensor")) store.selectTensor(chosen.get("tensor"));
if (chosen.get("step")) store.selectStep(Number(chosen.get("step")));
Object.assign(window, { store });
