// Moving between marks with arrow keys.
import type { Hit } from "../scene";

export interface Spot {
  key: string;
  x: number;
  y: number;
}

export type Arrow = "left" | "right" | "up" | "down";

// The nearest spot that lies in the arrow's direction, with what is aside counted double. From
// nowhere: the first one.
export function nextSpot<T extends Spot>(
  spots: readonly T[], from: Hit | null, arrow: Arrow,
): T | null {
  const here = from?.key === undefined ? undefined : spots.find((spot) => spot.key === from.key);
  if (!here) return spots[0] ?? null;
  const dx = arrow === "left" ? -1 : arrow === "right" ? 1 : 0;
  const dy = arrow === "up" ? -1 : arrow === "down" ? 1 : 0;
  let best: T | null = null, least = Infinity;
  for (const spot of spots) {
    const x = spot.x - here.x, y = spot.y - here.y;
    const ahead = x * dx + y * dy;
    if (ahead <= 0.01) continue;
    const aside = Math.abs(x * dy) + Math.abs(y * dx);
    const far = ahead + 2 * aside + (aside > ahead ? 1e6 : 0);
    if (far >= least) continue;
    least = far;
    best = spot;
  }
  return best;
}

// Of a grid: the next row and column; from nowhere the first.
export function nextCell(
  at: { row: number; column: number } | null, arrow: Arrow, rows: number, columns: number,
): { row: number; column: number } {
  if (!at) return { row: 0, column: 0 };
  const clamp = (x: number, end: number) => Math.max(0, Math.min(end - 1, x));
  return {
    row: clamp(at.row + (arrow === "up" ? -1 : arrow === "down" ? 1 : 0), rows),
    column: clamp(at.column + (arrow === "left" ? -1 : arrow === "right" ? 1 : 0), columns),
  };
}
