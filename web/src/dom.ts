// Elements. Text enters the page as text only, whatever is in it: nothing here parses markup.

type Child = Node | string | null;

interface Options {
  class?: string;
  text?: string;
  title?: string;
  attributes?: Record<string, string>;
}

// An element with a class, attributes and children.
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  options: Options = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (options.class) element.className = options.class;
  if (options.text !== undefined) element.textContent = options.text;
  if (options.title !== undefined) element.title = options.title;
  for (const [name, value] of Object.entries(options.attributes ?? {})) {
    element.setAttribute(name, value);
  }
  for (const child of children) if (child !== null) element.append(child);
  return element;
}

export function button(text: string, title: string, click: () => void): HTMLButtonElement {
  const b = el("button", { text, title, attributes: { type: "button" } });
  b.addEventListener("click", click);
  return b;
}

// Gives the reader a file.
export function save(name: string, content: Blob): void {
  const url = URL.createObjectURL(content);
  const link = el("a", { attributes: { href: url, download: name } });
  document.body.append(link);
  link.click();
  link.remove();
  // Some browsers begin to read only after the click's turn is over.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export interface Table {
  columns: string[];
  rows: (string | number | null)[][];
}

function csvCell(cell: string | number | null): string {
  if (cell === null) return "";
  if (typeof cell === "number") {
    // As in the files of a run.
    if (Number.isNaN(cell)) return "nan";
    return cell === Infinity ? "inf" : cell === -Infinity ? "-inf" : `${cell}`;
  }
  // A spreadsheet computes text that begins so: a run's name must not be a formula.
  const text = /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : cell;
  return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

export function csv(table: Table): string {
  return [table.columns, ...table.rows].map((r) => r.map(csvCell).join(",") + "\r\n").join("");
}

export function saveCsv(name: string, table: Table): void {
  save(`${name}.csv`, new Blob([csv(table)], { type: "text/csv;charset=utf-8" }));
}
