// The two themes of the plots.
import type { Theme } from "./scene";

// Series begin from Okabe and Ito's colours. They are moved so far that each pair of them is told
// apart by eyes that miss a kind of cone, and each has a contrast of 3 to 1 with the background:
// see detail/colours.test.ts.
export const light: Theme = {
  dark: false,
  text: "#1b1f24",
  muted: "#57606a",
  grid: "#e3e6ea",
  background: "#ffffff",
  panel: "#f6f8fa",
  accent: "#0b5cad",
  warn: "#b3261e",
  series: ["#4b70ca", "#e46b00", "#1f8b56", "#ce638f", "#62480a", "#4493c1", "#7153e6", "#585a50"],
};

export const dark: Theme = {
  dark: true,
  text: "#e6e9ee",
  muted: "#9aa4b0",
  grid: "#2c333c",
  background: "#12161b",
  panel: "#1a2027",
  accent: "#6cb6ff",
  warn: "#ff8f85",
  series: ["#00a3fd", "#e46d23", "#3bbe91", "#d788b6", "#f4bf46", "#96d2f8", "#aa86cd", "#d5d0d1"],
};
