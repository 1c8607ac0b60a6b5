// The state that the server has sent, and the connection to it.

import { useEffect, useState } from "preact/hooks";
import { ApiError, type Change, type Hello, hello, live } from "./api";

export type Tables = Record<string, Record<string, any>>;
export type Link = "connecting" | "live" | "lost" | "locked";

export interface Shown {
  tables: Tables;
  link: Link;
  who: Hello | null;
  // Why there is no live view.
  why: string;
}

let shown: Shown = { tables: {}, link: "connecting", who: null, why: "" };
const listeners = new Set<(shown: Shown) => void>();
let stop: AbortController | null = null;

function show(part: Partial<Shown>): void {
  shown = { ...shown, ...part };
  for (const listener of listeners) listener(shown);
}

export function useShown(): Shown {
  const [now, set] = useState(shown);
  useEffect(() => {
    listeners.add(set);
    set(shown);
    return () => void listeners.delete(set);
  }, []);
  return now;
}

// Returns the tables after a change. A table or row that has not changed stays the same object.
export function applied(tables: Tables, change: Change): Tables {
  const next: Tables = change.whole ? {} : { ...tables };
  for (const [name, part] of Object.entries(change.changes)) {
    const rows = { ...next[name] };
    for (const key of part.gone) delete rows[key];
    for (const [key, fields] of Object.entries(part.set)) rows[key] = { ...rows[key], ...fields };
    next[name] = rows;
  }
  return next;
}

const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 2000;

// Follows the server until `disconnect`. A server that is started again is found again.
export async function connect(): Promise<void> {
  disconnect();
  const mine = new AbortController();
  stop = mine;
  let wait = FIRST_WAIT_MS;
  while (!mine.signal.aborted) {
    try {
      const who = await hello(mine.signal);
      show({ who });
      await live(mine.signal, (change) => {
        if (mine.signal.aborted) return;
        wait = FIRST_WAIT_MS;
        show({ tables: applied(shown.tables, change), link: "live", why: "" });
      });
    } catch (error) {
      if (mine.signal.aborted) return;
      if (error instanceof ApiError && [401, 429].includes(error.status)) {
        show({ link: "locked", why: error.message, who: null, tables: {} });
        return;
      }
      const why = error instanceof ApiError ? error.message : "the server does not answer";
      show({ link: "lost", why });
    }
    if (mine.signal.aborted) return;
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }
}

export function disconnect(): void {
  stop?.abort();
  stop = null;
}
