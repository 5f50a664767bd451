// Light and dark. Colours of plots stand here; those of the page around them in style.css.
import { dark, light } from "./palette";
import type { Theme } from "./scene";

const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
let choice: "light" | "dark" | null = null; // null: as the system says
let printing = false;
const listeners = new Set<() => void>();

export function theme(): Theme {
  if (printing) return light;
  return (choice ?? (prefersDark.matches ? "dark" : "light")) === "dark" ? dark : light;
}

export const isPrinting = (): boolean => printing;

export function onTheme(listen: () => void): void {
  listeners.add(listen);
}

// The choice lasts as long as the page: from file:// all reports would share a place to keep it.
export function toggleTheme(): void {
  choice = theme().dark ? "light" : "dark";
  apply();
}

// Paper is white, whatever the screen is.
export function setPrinting(on: boolean): void {
  if (printing === on) return;
  printing = on;
  apply();
}

function apply(): void {
  document.documentElement.dataset.theme = theme().dark ? "dark" : "light";
  for (const listen of listeners) listen();
}

prefersDark.addEventListener("change", apply);
apply();
