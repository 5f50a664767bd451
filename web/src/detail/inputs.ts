// Controls that only these plots have.
import { changed, onRefresh } from "../controls";
import { el } from "../dom";

// A line of text, as a filter.
export function textBox(
  name: string, label: string, hint: string, get: () => string, set: (value: string) => void,
): HTMLElement {
  const input = el("input", {
    attributes: { "type": "search", "data-control": name, "placeholder": hint, "size": "16" },
  });
  input.value = get();
  input.addEventListener("input", () => set(input.value));
  const control = el("label", { class: "control" }, el("span", { text: label }), input);
  onRefresh(control, () => {
    if (document.activeElement !== input) input.value = get();
  });
  return control;
}

// Text below the controls: what a click found.
export function textPanel(name: string, lines: () => string[]): HTMLElement {
  const panel = el("div", { class: "detail-words", attributes: { "data-control": name } });
  panel.setAttribute("aria-live", "polite");
  // The row of controls wraps; this always has a row of its own.
  panel.style.flexBasis = "100%";
  panel.style.whiteSpace = "pre-wrap";
  panel.style.overflowWrap = "anywhere";
  let shown = "";
  const refresh = (): void => {
    const text = lines();
    const key = text.join("\n");
    if (key === shown && panel.hasChildNodes()) return;
    shown = key;
    panel.hidden = text.length === 0;
    panel.replaceChildren(...text.map((line) => el("div", { text: line })));
  };
  refresh();
  onRefresh(panel, refresh);
  return panel;
}

// A button that plays through `steps` by calling `show`. Whoever prefers reduced motion gets one
// step for each press instead.
export function player(
  name: string, steps: () => number[], at: () => number, show: (step: number) => void,
): HTMLElement {
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  const press = el("button", { attributes: { "type": "button", "data-control": name } });
  const control = el("span", { class: "control" }, press);
  let timer = 0;
  const label = (): void => {
    press.textContent = timer ? "Pause" : still.matches ? "Next promotion" : "Play";
    press.disabled = steps().length < 2;
  };
  const stop = (): void => {
    window.clearInterval(timer);
    timer = 0;
    label();
  };
  // Returns whether there is one more to come.
  const forward = (): boolean => {
    const next = steps().find((step) => step > at());
    if (next !== undefined) show(next);
    changed(control);
    return steps().some((step) => step > at());
  };
  press.addEventListener("click", () => {
    if (timer) return stop();
    const all = steps();
    if (all.length < 2) return;
    if (at() >= all[all.length - 1]) {
      show(all[0]);
      changed(control);
    }
    if (still.matches) {
      forward();
      return;
    }
    // The whole run in six seconds, but never faster than the eye.
    const pause = Math.max(150, Math.min(700, 6000 / all.length));
    timer = window.setInterval(() => {
      if (!control.isConnected || !forward()) stop();
    }, pause);
    label();
  });
  label();
  onRefresh(control, label);
  return control;
}
