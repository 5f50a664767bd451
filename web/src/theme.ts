// Light and dark. Colours of plots stand here; those of the page around them in style.css.
import type { Theme } from "./scene";

// Okabe-Ito: told apart with any common colour blindness. Yellow is darker on white and all are
// lighter on black, so that each keeps a contrast of 3 to 1 with the background.
const light: Theme = {
  dark: false,
  text: "#1b1f24",
  muted: "#57606a",
  grid: "#e3e6ea",
  background: "#ffffff",
  panel: "#f6f8fa",
  accent: "#0b5cad",
  warn: "#b3261e",
  series: ["#0072b2", "#d55e00", "#00896a", "#b8578f", "#a87900", "#3a95cf", "#6a4fa3", "#5f5f5f"],
};

const dark: Theme = {
  dark: true,
  text: "#e6e9ee",
  muted: "#9aa4b0",
  grid: "#2c333c",
  background: "#12161b",
  panel: "#1a2027",
  accent: "#6cb6ff",
  warn: "#ff8f85",
  series: ["#3f9fe0", "#ff8438", "#2fc09a", "#e693c3", "#f0bd42", "#93d0f7", "#b49cf0", "#b8bcc2"],
};

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
