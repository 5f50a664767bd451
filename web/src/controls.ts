// Controls above a plot. The frame redraws after any `input` event that bubbles up from them, so a
// control only keeps its value. What else changes a plot (a timer) dispatches one: see `changed`.
import { el } from "./dom";

const refreshers = new WeakMap<Element, () => void>();

// Options may depend on the document; they are asked for again after it changes.
export function refreshControls(host: Element): void {
  for (const child of host.children) refreshers.get(child)?.();
}

// `refresh` is called when the document, the filter or the selection changed.
export function onRefresh(control: Element, refresh: () => void): void {
  refreshers.set(control, refresh);
}

// Tells the frame that what the control stands for has changed.
export function changed(control: Element): void {
  control.dispatchEvent(new Event("input", { bubbles: true }));
}

export interface Option {
  value: string;
  text: string;
}

// A drop-down. `name` tells controls of a plot apart: data-control in the page.
export function select(
  name: string,
  label: string,
  options: () => readonly Option[],
  get: () => string,
  set: (value: string) => void,
): HTMLElement {
  const input = el("select", { attributes: { "data-control": name } });
  let shown = "";
  const refresh = (): void => {
    const all = options();
    const key = JSON.stringify(all);
    if (key !== shown) {
      shown = key;
      input.replaceChildren(
        ...all.map((o) => el("option", { text: o.text, attributes: { value: o.value } })));
    }
    input.value = get();
    input.disabled = all.length < 2;
  };
  refresh();
  input.addEventListener("input", () => set(input.value));
  const control = el("label", { class: "control" }, el("span", { text: label }), input);
  onRefresh(control, refresh);
  return control;
}

export interface Range {
  min: number;
  max: number;
  step: number;
}

// A slider with its value as text beside it.
export function slider(
  name: string,
  label: string,
  range: () => Range,
  get: () => number,
  set: (value: number) => void,
  text: (value: number) => string = String,
): HTMLElement {
  const input = el("input", { attributes: { type: "range", "data-control": name } });
  const value = el("output");
  const refresh = (): void => {
    const r = range();
    [input.min, input.max, input.step] = [String(r.min), String(r.max), String(r.step)];
    input.value = String(get());
    value.textContent = text(get());
  };
  refresh();
  input.addEventListener("input", () => {
    set(Number(input.value));
    value.textContent = text(get());
  });
  const control = el("label", { class: "control" }, el("span", { text: label }), input, value);
  onRefresh(control, refresh);
  return control;
}

export function checkbox(
  name: string,
  label: string,
  get: () => boolean,
  set: (value: boolean) => void,
): HTMLElement {
  const input = el("input", { attributes: { type: "checkbox", "data-control": name } });
  input.checked = get();
  input.addEventListener("input", () => set(input.checked));
  const control = el("label", { class: "control" }, input, el("span", { text: label }));
  onRefresh(control, () => { input.checked = get(); });
  return control;
}
