// Numbers in words, in the units that the command line has.

export function bytes(count: number): string {
  for (const [name, factor] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]] as const)
    if (count >= factor) return `${trim(count / factor)} ${name}`;
  return `${count} B`;
}

export function share(ppm: number): string {
  const percent = ppm / 10000;
  return `${percent >= 10 || percent === 0 ? Math.round(percent) : percent.toFixed(1)}%`;
}

// As a form field holds it, exactly.
export function exactShare(ppm: number): string {
  return `${+(ppm / 10000).toFixed(4)}%`;
}

export function roundTrip(ns: number): string {
  if (!ns) return "";
  return ns < 1e6 ? `${Math.round(ns / 1e3)} µs` : `${trim(ns / 1e6)} ms`;
}

export function rate(bytesPerSecond: number): string {
  return bytesPerSecond ? `${bytes(Math.round(bytesPerSecond))}/s` : "";
}

export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function clock(seconds: number): string {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

// The time; with the date if that is not today.
export function moment(seconds: number): string {
  const date = new Date(seconds * 1000);
  const day = date.toLocaleDateString("sv-SE"); // Sweden writes 2026-11-28
  return day === new Date().toLocaleDateString("sv-SE") ? clock(seconds) : `${day} ${clock(seconds)}`;
}

export function words(name: string): string {
  return name.replaceAll("_", " ");
}

function trim(value: number): string {
  return value >= 100 ? String(Math.round(value)) : String(+value.toFixed(value >= 10 ? 1 : 2));
}

/** What a lease is called: its key if somebody chose it, else the name of its run. */
export function called(row: { key: string; name: string }, id: string): string {
  const drawn = /^run-[0-9a-f]{12,}(\.\d+)?$/.test(row.key);
  return (drawn && row.name) || row.key || row.name || id;
}
