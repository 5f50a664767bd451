// Hits on points: the nearest under the pointer, and the next one for arrow keys.
import type { Hit } from "../scene";

export interface Spot {
  x: number;
  y: number;
  hit: Hit;
}

// The nearest within `reach` pixels.
export function nearest(spots: readonly Spot[], x: number, y: number, reach = 14): Hit | null {
  let best: Hit | null = null;
  let least = reach;
  for (const s of spots) {
    const d = Math.hypot(s.x - x, s.y - y);
    // Of equal ones the later: it is drawn above.
    if (d <= least) {
      least = d;
      best = s.hit;
    }
  }
  return best;
}

// Left and right go by x, up and down by y. From none: the first by x.
export function next(
  spots: readonly Spot[], from: Hit | null, key: "left" | "right" | "up" | "down"): Spot | null {
  const level = key === "up" || key === "down";
  const order = [...spots].sort((a, b) =>
    (level ? a.y - b.y || a.x - b.x : a.x - b.x || a.y - b.y));
  const at = from ? order.findIndex((s) => s.hit.key === from.key) : -1;
  if (at < 0) return order[0] ?? null;
  const to = at + (key === "right" || key === "down" ? 1 : -1);
  return order[Math.max(0, Math.min(order.length - 1, to))] ?? null;
}
