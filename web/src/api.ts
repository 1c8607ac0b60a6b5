// Talks to the server: who the user is, the live view, questions and orders.
//
// The access token is kept in this tab alone (sessionStorage) and goes out as a header that the
// script sets, never as a cookie: a cookie of 127.0.0.1 goes to every port of the machine.

export interface Hello {
  kind: "server" | "manager";
  title: string;
  release: string;
  secret: string;
  tenant: string | null;
  operator: boolean;
  proof: string;
}

export class ApiError extends Error {
  constructor(readonly status: number, sentence: string) {
    super(sentence);
  }
}

const KEY = "rgpu-access-token";

export function token(): string {
  return sessionStorage.getItem(KEY) ?? "";
}

export function setToken(text: string): void {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

function headers(): Record<string, string> {
  return token() ? { authorization: `Bearer ${token()}` } : {};
}

async function checked(response: Response): Promise<Response> {
  if (response.ok) return response;
  let sentence = `the server answers ${response.status}`;
  try {
    sentence = (await response.json()).message ?? sentence;
  } catch {
    // A proxy's answer is no JSON.
  }
  throw new ApiError(response.status, sentence);
}

async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const asked = fetch(path, { headers: headers(), signal, credentials: "omit", cache: "no-store" });
  return (await checked(await asked)).json() as Promise<T>;
}

let secret = "";

export async function hello(signal?: AbortSignal): Promise<Hello> {
  const found = await get<Hello>("api/hello", signal);
  secret = found.secret;
  return found;
}

export function ask<T>(what: string, query: Record<string, string | number>): Promise<T> {
  const fields = Object.entries(query).map(([name, value]) => [name, String(value)]);
  return get<T>(`api/${what}?${new URLSearchParams(fields)}`);
}

// Returns what the server says that it has done.
export async function order(name: string, fields: Record<string, unknown>): Promise<string> {
  const response = await checked(
    await fetch("api/order", {
      method: "POST",
      headers: { ...headers(), "content-type": "application/json", "x-rgpu-page": secret },
      body: JSON.stringify({ order: name, ...fields }),
      credentials: "omit",
    }),
  );
  return (await response.json()).message;
}

export interface Change {
  whole?: boolean;
  changes: Record<string, { set: Record<string, object>; gone: string[] }>;
}

// The server says something at least each five seconds.
const SILENCE_MS = 12000;

// Calls `heard` with each change; returns when the stream ends, throws when it fails.
export async function live(signal: AbortSignal, heard: (change: Change) => void): Promise<void> {
  const own = new AbortController();
  const stop = () => own.abort();
  signal.addEventListener("abort", stop);
  let watchdog = setTimeout(stop, SILENCE_MS);
  try {
    const asked = fetch("api/live", { headers: headers(), signal: own.signal, credentials: "omit" });
    const reader = (await checked(await asked)).body!.getReader();
    const decoder = new TextDecoder();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(watchdog);
      watchdog = setTimeout(stop, SILENCE_MS);
      text += decoder.decode(value, { stream: true });
      const parts = text.split("\n\n");
      text = parts.pop()!;
      for (const part of parts) if (part.startsWith("data: ")) heard(JSON.parse(part.slice(6)));
    }
  } finally {
    clearTimeout(watchdog);
    signal.removeEventListener("abort", stop);
  }
}
