// Small parts that several views have.

import type { ComponentChildren } from "preact";
import { share } from "./format";

// A link within the page.
export function To({ view, id, children }: { view: string; id?: string; children: ComponentChildren }) {
  return <a href={`#/${view}${id ? `/${encodeURIComponent(id)}` : ""}`}>{children}</a>;
}

// As `rgpu top` has it: red waits and has less than this part of its guarantee.
const SHORT = 0.95;

// The whole device: filled is what the lease got, the marks are its guarantee and its limit.
export function ShareBar({ got, guaranteed, limit, waits }: { got: number; guaranteed: number; limit?: number; waits?: number }) {
  const at = (ppm: number) => Math.min(100, ppm / 10000);
  const short = (waits ?? 0) > 20000 && got < guaranteed * SHORT;
  const said = `${share(got)} of the device${short ? ", less than its guarantee, and waiting" : ""}`;
  return (
    <svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={said}>
      <title>{said}</title>
      <rect class="ground" width="100" height="10" />
      <rect class={short ? "short" : "got"} width={at(Math.min(got, guaranteed))} height="10" />
      {got > guaranteed && <rect class="lent" x={at(guaranteed)} width={at(got) - at(guaranteed)} height="10" />}
      {limit !== undefined && limit < 1000000 && <rect class="mark" x={at(limit) - 0.5} width="0.6" height="10" />}
      {guaranteed > 0 && <rect class="mark strong" x={Math.max(0, at(guaranteed) - 0.6)} width="1" height="10" />}
    </svg>
  );
}

export function FillBar({ used, whole, name }: { used: number; whole: number; name: string }) {
  const part = whole ? Math.min(100, (100 * used) / whole) : 0;
  return (
    <svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={`${Math.round(part)}% of ${name}`}>
      <rect class="ground" width="100" height="10" />
      <rect class={part > 95 ? "full" : "memory"} width={part} height="10" />
    </svg>
  );
}

// Facts with a bar, which need the room of two.
const WIDE = new Set(["Busy", "Memory", "Share", "Asked for", "Why"]);

export function Facts({ rows }: { rows: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {rows.filter(([, value]) => value !== "" && value != null && value !== false).map(([name, value]) => (
        <div class={WIDE.has(name) ? "wide" : undefined}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Badge({ kind, children }: { kind: "good" | "warn" | "bad" | "plain"; children: ComponentChildren }) {
  return <span class={`badge ${kind}`}>{children}</span>;
}

export function Gone({ what }: { what: string }) {
  return <p class="note">{what} is not here: it has ended, or belongs to another tenant.</p>;
}
