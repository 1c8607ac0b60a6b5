// Events, of a server and of a manager.

import { useRef } from "preact/hooks";
import { clock, words } from "./format";
import { Badge, To } from "./parts";
import { useShown } from "./store";
import { type Column, Table } from "./table";

interface AnyEvent {
  at: number;
  event: string;
  refusal: boolean;
  sentence: string;
  tenant?: string;
  lease?: string;
  session?: number;
  node?: string;
  request?: string;
}

const kind: Column<AnyEvent> = {
  name: "Event",
  show: (row) => <Badge kind={row.refusal ? "bad" : "plain"}>{words(row.event)}</Badge>,
  sort: (row) => row.event,
};
const at: Column<AnyEvent> = { name: "Time", show: (row) => clock(row.at), sort: (row) => row.at };
const what: Column<AnyEvent> = { name: "What", show: (row) => row.sentence, under: true };
const tenant: Column<AnyEvent> = { name: "Tenant", show: (row) => row.tenant, sort: (row) => row.tenant ?? "" };
const OF_SERVER: Column<AnyEvent>[] = [
  at,
  kind,
  tenant,
  {
    name: "About",
    show: (row) => (
      <>
        {row.lease && <To view="lease" id={row.lease}>{row.lease}</To>}{" "}
        {row.session ? <To view="session" id={String(row.session)}>session {row.session}</To> : ""}
      </>
    ),
    minor: true,
    short: true,
  },
  what,
];
const OF_MANAGER: Column<AnyEvent>[] = [
  at,
  kind,
  { name: "Request", show: (row) => row.request && <To view="request" id={row.request}>{row.request}</To>, sort: (row) => row.request ?? "" },
  { name: "Node", show: (row) => row.node, sort: (row) => row.node ?? "", minor: true },
  what,
];

export function EventTable({ rows, server, empty }: { rows: Record<string, AnyEvent>; server?: boolean; empty?: string }) {
  return (
    <Table
      caption="Events"
      columns={server ? OF_SERVER : OF_MANAGER}
      rows={rows}
      text={(row) => `${words(row.event)} ${row.tenant ?? ""} ${row.lease ?? ""} ${row.request ?? ""} ${row.node ?? ""} ${row.sentence}`}
      empty={empty ?? "Nothing has happened yet."}
      by="Time"
      descending
    />
  );
}

// The rows of a table that a view is about; the same object as long as none of them has changed.
export function usePart<Row extends object>(table: string, is: (row: Row) => boolean, about: string): Record<string, Row> {
  const { tables } = useShown();
  const kept = useRef<{ from: unknown; about: string; rows: Record<string, Row> } | null>(null);
  const from = tables[table] as Record<string, Row> | undefined;
  if (kept.current?.from !== from || kept.current?.about !== about) {
    const rows = Object.fromEntries(Object.entries(from ?? {}).filter(([, row]) => is(row)));
    kept.current = { from, about, rows };
  }
  return kept.current!.rows;
}
