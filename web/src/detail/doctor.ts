// What `ulp doctor` says of the focused run.
import { el } from "../dom";
import type { Panel } from "../frame";
import type { Focus } from "./focus";

export function doctorElement(focus: Focus): { element: HTMLElement; refresh: () => void } {
  const sentence = el("p", { class: "doctor-sentence" });
  const text = el("pre", { class: "doctor-text" });
  // Long lines scroll inside; the page never does sideways.
  text.style.overflowX = "auto";
  text.style.maxHeight = "28em";
  text.tabIndex = 0;
  const refresh = (): void => {
    // The program prints the sentence first: it stands above, and the rest below it.
    const [first, ...rest] = (focus.run?.doctor?.text ?? "").split("\n");
    sentence.textContent = first;
    text.textContent = rest.join("\n").trim();
    text.hidden = text.textContent === "";
  };
  refresh();
  return { element: el("div", {}, sentence, text), refresh };
}

export function doctorPanel(focus: Focus): Panel {
  const { element, refresh } = doctorElement(focus);
  return {
    id: "doctor",
    title: "The doctor",
    about: "Which tensor overflowed or was flushed to zero first, and what each remedy costs: " +
      "what `ulp doctor` prints for this run.",
    element,
    refresh,
    empty: () => {
      const why = focus.noRun();
      if (why || focus.run?.doctor) return why;
      return focus.noRanges() || `The doctor has nothing to go by in ${focus.run!.id}.`;
    },
  };
}
