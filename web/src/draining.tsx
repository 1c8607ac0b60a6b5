// The orders that keep new leases off a server, or let them come again.

import { Field, Order } from "./dialog";

// what: the server, in words. fields: what names it to whoever takes the order.
export function DrainOrder({ what, fields, draining }: { what: string; fields: Record<string, unknown>; draining: boolean }) {
  if (draining) {
    return (
      <Order label="Undrain" title={`Let ${what} take new leases again?`} name="undrain" fields={fields}>
        <p>The server takes new leases and sessions.</p>
      </Order>
    );
  }
  return (
    <Order
      label="Drain"
      title={`Drain ${what}?`}
      name="drain"
      fields={fields}
      danger
      read={(form) => {
        const text = String(form.get("end_after") ?? "").trim();
        return text ? { end_after_seconds: Number(text) } : {};
      }}
    >
      <p>The server takes no new leases and sessions. What runs goes on until it ends by itself.</p>
      <Field label="End what still runs after (seconds)" name="end_after" value="" hint="Empty: never." />
    </Order>
  );
}
