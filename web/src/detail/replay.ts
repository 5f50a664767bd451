// The format of every tensor after any step: formats at the start and the promotions of a run.
import type { Plan, Run } from "../state";
import { lowerBound } from "./numbers";

export class Replay {
  private readonly start = new Map<string, string>();
  private readonly changes = new Map<string, { step: number[]; to: string[] }>();

  constructor(run: Pick<Run, "promotions" | "heat">, plan: Plan | null) {
    for (const tensor of plan?.tensors ?? []) this.start.set(tensor.name, tensor.format);
    // A run's own record beats a plan, which may have been made on another device.
    for (const tensor of run.heat?.tensors ?? []) this.start.set(tensor.name, tensor.format);
    const { promotions } = run;
    for (const i of byStep(promotions)) {
      const name = promotions.tensor[i];
      let change = this.changes.get(name);
      if (!change) this.changes.set(name, change = { step: [], to: [] });
      change.step.push(promotions.step[i]);
      change.to.push(promotions.to[i]);
      if (!this.start.has(name)) this.start.set(name, promotions.from[i]);
    }
  }

  // Once `step` steps are completed; 0: before the first. "": unknown tensor.
  after(tensor: string, step: number): string {
    const change = this.changes.get(tensor);
    const start = this.start.get(tensor) ?? "";
    if (!change) return start;
    const next = lowerBound(change.step, step + 1);
    return next === 0 ? start : change.to[next - 1];
  }

  // While the step runs: what it promotes changes the next one.
  during(tensor: string, step: number): string {
    return this.after(tensor, step - 1);
  }

  formats(): string[] {
    const all = new Set(this.start.values());
    for (const change of this.changes.values()) change.to.forEach((format) => all.add(format));
    return [...all];
  }
}

function byStep(promotions: Run["promotions"]): number[] {
  const order = promotions.step.map((_, i) => i);
  return order.sort((a, b) => promotions.step[a] - promotions.step[b] || a - b);
}
