// The last thing that was done, for the line that screen readers read out.

const listeners = new Set<(sentence: string) => void>();

export function announce(sentence: string): void {
  for (const listener of listeners) listener(sentence);
}

export function onAnnounce(listener: (sentence: string) => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}
