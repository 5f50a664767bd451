// Asks for the document again while runs go on. Nothing is asked of anybody when the page was
// opened from a file.
import type { Report } from "./data";
import type { Store } from "./state";

const usual = 2_000; // ms
const longest = 10_000;
const patience = 30_000; // with one answer: a server that is stopped gives none, and keeps the line

export function follow(store: Store, say: (status: string, lost: boolean) => void): void {
  if (!store.doc.live || !/^https?:$/.test(location.protocol)) return;
  let tag = "";
  let wait = usual;
  // Beside the page, whatever folder it is served from.
  const address = new URL("document.json", location.href);
  address.search = "";
  address.hash = "";

  const ask = async (signal: AbortSignal): Promise<void> => {
    const headers: Record<string, string> = tag ? { "If-None-Match": tag } : {};
    // The page keeps the tag itself: a cache would answer 200 where the server says 304.
    const answer = await fetch(address, { headers, cache: "no-store", redirect: "error", signal });
    if (answer.status === 304) return;
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const report = (await answer.json()) as Report;
    if (report.version !== 1) throw new Error("another version of Ulp is running");
    tag = answer.headers.get("ETag") ?? "";
    store.replace(report);
  };

  const turn = (): void => {
    // A tab in the background may wait until somebody looks.
    if (document.hidden) {
      document.addEventListener("visibilitychange", turn, { once: true });
      return;
    }
    const request = new AbortController();
    const late = setTimeout(() => request.abort(), patience);
    ask(request.signal).then(
      () => {
        wait = usual;
        say("live", false);
      },
      () => {
        wait = Math.min(longest, wait * 2);
        say("connection lost", true);
      },
    ).finally(() => {
      clearTimeout(late);
      setTimeout(turn, wait);
    });
  };
  say("live", false);
  setTimeout(turn, usual);
}
