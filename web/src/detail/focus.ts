// What the plots of one run share: the run that is focused, its plan, its formats over time, and
// what a click selects.
import { refreshControls } from "../controls";
import type { Hit } from "../scene";
import type { Plan, Run, Store } from "../state";
import { HeatView, type Heat } from "./heat_data";
import { Replay } from "./replay";

// Remembers the last result as long as what it was made of is the same.
export function memo<K extends readonly unknown[], V>(make: (...key: K) => V): (...key: K) => V {
  let last: { key: K; result: V } | null = null;
  return (...key) => {
    const kept = last;
    if (kept && kept.key.length === key.length && key.every((k, i) => k === kept.key[i])) {
      return kept.result;
    }
    last = { key, result: make(...key) };
    return last.result;
  };
}

export class Focus {
  private readonly replays = memo((run: Run, plan: Plan | null) => new Replay(run, plan));
  private readonly views = memo((run: Run, heat: Heat) => new HeatView(run, heat));
  private readonly followers = new Set<HTMLElement>();

  constructor(readonly store: Store) {
    // The frame renews controls when runs change; these also follow the tensor and the step.
    store.subscribe((change) => {
      if (change !== "tensor" && change !== "step") return;
      for (const control of this.followers) {
        if (control.parentElement) refreshControls(control.parentElement);
      }
    });
  }

  get run(): Run | null {
    return this.store.focusedRun();
  }

  get plan(): Plan | null {
    return this.store.planOf(this.run) as Plan | null;
  }

  get tensor(): string | null {
    return this.store.tensor;
  }

  // The chosen step; the last one of the run while none is chosen.
  get step(): number {
    const last = this.run?.steps ?? 0;
    return Math.max(0, Math.min(last, this.store.step ?? last));
  }

  get replay(): Replay | null {
    const run = this.run;
    return run ? this.replays(run, this.plan) : null;
  }

  get heat(): HeatView | null {
    const run = this.run;
    return run?.heat ? this.views(run, run.heat) : null;
  }

  // Returns the control, which is renewed when the chosen tensor or step changes.
  follow(control: HTMLElement): HTMLElement {
    this.followers.add(control);
    return control;
  }

  click(hit: Hit): void {
    const again = hit.tensor !== undefined && hit.tensor === this.store.tensor &&
      (hit.step === undefined || hit.step === this.store.step);
    if (hit.tensor !== undefined) this.store.selectTensor(again ? null : hit.tensor);
    if (hit.step !== undefined && !again) this.store.selectStep(hit.step);
  }

  // Why there is no run to show; "": there is one.
  noRun(): string {
    return this.run ? "" : "There is no run. `ulp train --out DIR` makes one.";
  }

  // Why a run recorded nothing about its tensors.
  noRanges(): string {
    const run = this.run;
    if (!run) return this.noRun();
    if (run.heat && run.heat.step.length > 0 && run.heat.tensors.length > 0) return "";
    // Such as that they had no room in the report.
    const why = run.notes.filter((note) => note.includes("ranges"));
    if (why.length > 0) return `${run.id}: ${why.join(" ")}`;
    const policy = run.settings.policy ?? "fp32";
    if (policy === "fp32") {
      return `${run.id}: all tensors are fp32, so nothing can overflow and nothing is recorded. ` +
        "Train with a narrow policy, as `--policy size:0.5`.";
    }
    if (run.steps === 0) return `${run.id} has taken no step yet.`;
    return `${run.id} has no readable ranges.bin, or no tensor narrower than fp32. ` +
      "`ulp train --policy size:0.5` writes it.";
  }

  noPlan(): string {
    const run = this.run;
    if (!run) return this.noRun();
    const plan = this.plan;
    if (!plan) return `${run.id} could not be planned here. ${run.notes.join(" ")}`.trim();
    if (!plan.detail) {
      return "The report has too many plans to hold every one in full. " +
        "`ulp report` on this run's folder alone shows it.";
    }
    return "";
  }
}
