// Orders: a button that asks before anything happens, and says afterwards what has been done.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { order } from "./api";
import { announce } from "./announce";

interface Props {
  label: string;
  title: string;
  // What is going to happen.
  children: ComponentChildren;
  name: string;
  fields: Record<string, unknown>;
  danger?: boolean;
  // Returns further fields from the form.
  read?: (form: FormData) => Record<string, unknown>;
}

export function Order(props: Props) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" class={props.danger ? "danger" : ""} onClick={() => setOpen(true)}>{props.label}</button>
      {open && <Confirm {...props} done={() => setOpen(false)} />}
    </>
  );
}

function Confirm({ label, title, children, name, fields, danger, read, done }: Props & { done: () => void }) {
  const box = useRef<HTMLDialogElement>(null);
  const [busy, setBusy] = useState(false);
  const [wrong, setWrong] = useState("");
  useEffect(() => box.current!.showModal(), []);

  async function carryOut(event: SubmitEvent): Promise<void> {
    event.preventDefault();
    if (busy) return;
    setBusy(true);
    setWrong("");
    try {
      const more = read?.(new FormData(event.target as HTMLFormElement)) ?? {};
      announce(await order(name, { ...fields, ...more }));
      box.current!.close();
    } catch (error) {
      setWrong((error as Error).message);
      setBusy(false);
    }
  }

  return (
    <dialog ref={box} aria-labelledby="order-title" onClose={done}>
      <form onSubmit={carryOut}>
        <h2 id="order-title">{title}</h2>
        {children}
        <p class="wrong" role="alert">{wrong}</p>
        <div class="buttons">
          <button type="button" onClick={() => box.current!.close()}>Cancel</button>
          <button type="submit" class={danger ? "danger" : "primary"} disabled={busy}>{label}</button>
        </div>
      </form>
    </dialog>
  );
}

export function Field({ label, name, value, hint }: { label: string; name: string; value: string; hint?: string }) {
  return (
    <p class="field">
      <label>
        {label} <input name={name} defaultValue={value} autocomplete="off" aria-describedby={hint && `${name}-hint`} />
      </label>
      {hint && <small id={`${name}-hint`}>{hint}</small>}
    </p>
  );
}
