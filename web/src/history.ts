// Shares and memory over time: first what the server has recorded, then what the live view says.

import { useEffect, useReducer, useRef } from "preact/hooks";
import { ask } from "./api";
import type { LeaseRow, Record_, Series } from "./rows";
import { useShown } from "./store";

export interface History {
  times: number[];
  asked: (number | null)[];
  guaranteed: (number | null)[];
  got: (number | null)[];
  lent: (number | null)[];
  waiting: (number | null)[];
  limit: (number | null)[];
  used: (number | null)[];
  most: (number | null)[];
}

const SECONDS = 600;
const NAMES = ["times", "asked", "guaranteed", "got", "lent", "waiting", "limit", "used", "most"] as const;

function empty(): History {
  return Object.fromEntries(NAMES.map((name) => [name, []])) as unknown as History;
}

// lease: one lease. device: the sums of the leases on a device.
export function useHistory(of: { lease: string } | { device: number }): History {
  const { tables, who } = useShown();
  const history = useRef<History>(empty());
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  const lease = "lease" in of ? of.lease : "";
  const device = "device" in of ? of.device : -1;

  useEffect(() => {
    let left = false;
    history.current = empty();
    void ask<Record_>("record", { since: SECONDS, steps: SECONDS, ...(lease ? { lease } : {}) })
      .then((record) => {
        if (left) return;
        const series = record.series.filter((one) => lease || one.device === device);
        history.current = recorded(record, series, history.current);
        redraw(0);
      })
      .catch(() => undefined); // The live view goes on; the record is missing.
    return () => void (left = true);
  }, [lease, device, who?.secret]);

  const at: number = tables.server?.[""]?.at ?? 0;
  useEffect(() => {
    if (!at || at <= (history.current.times.at(-1) ?? 0)) return;
    const leases = Object.entries((tables.leases ?? {}) as Record<string, LeaseRow>);
    const here = leases.filter(([id, row]) => (lease ? id === lease : row.device === device)).map(([, row]) => row);
    if (lease && !here.length) return;
    append(history.current, at, here);
    redraw(0);
  }, [at]);
  return history.current;
}

function sum(rows: LeaseRow[], value: (row: LeaseRow) => number): number {
  return rows.reduce((total, row) => total + value(row), 0);
}

function append(history: History, at: number, rows: LeaseRow[]): void {
  history.times.push(at);
  history.asked.push(sum(rows, (row) => row.asked_ppm));
  history.guaranteed.push(sum(rows, (row) => row.share_request_ppm));
  history.got.push(sum(rows, (row) => row.share_1s_ppm));
  history.lent.push(sum(rows, (row) => row.lent_ppm));
  history.waiting.push(sum(rows, (row) => row.waiting_ppm));
  history.limit.push(Math.min(1e6, sum(rows, (row) => row.share_limit_ppm)));
  history.used.push(sum(rows, (row) => row.memory_used_bytes));
  history.most.push(sum(rows, (row) => row.memory_limit_bytes));
  const old = history.times.findIndex((time) => time > at - SECONDS);
  if (old > 0) for (const name of NAMES) history[name].splice(0, old);
}

// The record does not have what was asked for, so that line begins when the page is opened.
function recorded(record: Record_, series: Series[], live: History): History {
  const made = empty();
  // Nothing is drawn of the time before the first lease.
  const first = Math.min(...series.map((one) => one.leases.findIndex((count) => count > 0)), record.steps);
  for (let step = first; step < record.steps; step++) {
    const time = record.start_seconds + (step + 1) * record.step_seconds;
    if (live.times.length && time >= live.times[0]) break;
    const there = series.filter((one) => one.leases[step] > 0);
    const total = (value: (one: Series) => number) => (there.length ? there.reduce((t, one) => t + value(one), 0) : null);
    made.times.push(time);
    made.asked.push(null);
    made.guaranteed.push(total((one) => one.request_ppm[step]));
    made.got.push(total((one) => one.share_ppm[step]));
    made.lent.push(total((one) => Math.max(0, one.share_ppm[step] - one.request_ppm[step])));
    made.waiting.push(total((one) => one.waiting_ppm[step]));
    made.limit.push(total((one) => one.limit_ppm[step]));
    made.used.push(total((one) => one.memory_used_bytes[step]));
    made.most.push(total((one) => one.memory_limit_bytes[step]));
  }
  for (const name of NAMES) (made[name] as (number | null)[]).push(...(live[name] as (number | null)[]));
  return made;
}
