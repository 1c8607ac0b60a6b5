// The views of a manager: the whole cluster.

import { useEffect, useState } from "preact/hooks";
import { ask } from "./api";
import { Order } from "./dialog";
import { DrainOrder } from "./draining";
import { EventTable, usePart } from "./events";
import { bytes, duration, moment, rate, roundTrip, share } from "./format";
import { Badge, Facts, FillBar, Gone, ShareBar, To } from "./parts";
import type { Alternative, CardRow, ClusterEventRow, ClusterRow, Explanation, NodeRow, PathRow, QueuedRow, ReservationRow } from "./rows";
import { useShown } from "./store";
import { type Column, Table } from "./table";

const NODES: Column<NodeRow>[] = [
  { name: "Node", show: (_row, name) => name, sort: (_row, name) => name },
  { name: "State", show: (row) => <NodeState row={row} />, sort: (row) => String(row.connected) },
  { name: "Cards", show: (row) => row.cards, sort: (row) => row.cards, right: true },
  { name: "Orders", show: (row, name) => <NodeOrders name={name} row={row} /> },
  { name: "Address", show: (row) => row.address, sort: (row) => row.address, minor: true },
  { name: "Zone", show: (row) => row.zone, sort: (row) => row.zone, minor: true },
  { name: "Rack", show: (row) => row.rack, sort: (row) => row.rack, minor: true },
  { name: "Network", show: (row) => row.nic, sort: (row) => row.nic, minor: true },
  { name: "Bandwidth free", show: (row) => (row.bandwidth_bps ? `${rate(row.free_bandwidth_bps) || "0 B/s"} of ${rate(row.bandwidth_bps)}` : ""), minor: true, right: true },
];

function NodeOrders({ name, row }: { name: string; row: NodeRow }) {
  const { who } = useShown();
  if (!who?.operator || !row.connected) return null;
  return <DrainOrder what={name} fields={{ node: name }} draining={row.taints.includes("drain")} />;
}

function NodeState({ row }: { row: NodeRow }) {
  if (row.silent_since) return <Badge kind="bad">not ready for {duration(Date.now() / 1000 - row.silent_since)}</Badge>;
  if (!row.connected) return <Badge kind="bad">not connected</Badge>;
  if (row.taints.length) return <Badge kind="warn">{row.taints.join(", ")}</Badge>;
  return <Badge kind="good">ready</Badge>;
}

const CARDS: Column<CardRow>[] = [
  { name: "Card", show: (_row, id) => id, sort: (_row, id) => id },
  { name: "Model", show: (row) => <>{row.model} {row.mig}</>, sort: (row) => row.model, minor: true },
  { name: "Share", show: (row) => <ShareBar got={row.used_ppm} guaranteed={row.leased_ppm} /> },
  { name: "Used", show: (row) => share(row.used_ppm), sort: (row) => row.used_ppm, right: true, minor: true },
  { name: "Leased", show: (row) => share(row.leased_ppm), sort: (row) => row.leased_ppm, right: true },
  { name: "Memory leased", show: (row) => <>{bytes(row.leased_bytes)} of {bytes(row.memory_bytes)}</>, sort: (row) => row.leased_bytes, right: true, minor: true },
  { name: "Memory used", show: (row) => <>{bytes(row.used_bytes)} <FillBar used={row.used_bytes} whole={row.memory_bytes} name="the card's memory" /></>, sort: (row) => row.used_bytes, minor: true },
  { name: "Pool", show: (row) => row.pool, sort: (row) => row.pool, minor: true },
  { name: "Who is there", show: (row) => <Holders row={row} />, under: true },
];

function Holders({ row }: { row: CardRow }) {
  return (
    <ul class="holders">
      {row.holders.map((one) => (
        <li>
          <To view="request" id={one.request}>{one.request}</To> {one.name} {one.tenant}, {one.whole ? "whole" : `${share(one.share_ppm)} ${bytes(one.memory_bytes)}`}
          {one.wanted_ppm > one.share_ppm && ` (asked ${share(one.wanted_ppm)})`}
          {one.ends_at > 0 && <Badge kind="bad">ends {moment(one.ends_at)}</Badge>}
        </li>
      ))}
      {row.others > 0 && <li>{row.others} of other tenants</li>}
    </ul>
  );
}

export function Overview() {
  const { tables } = useShown();
  const waiting = Object.keys(tables.waiting ?? {}).length;
  return (
    <>
      {waiting > 0 && <p class="note"><To view="queue">{waiting} waiting for cards</To></p>}
      <section aria-labelledby="nodes">
        <h2 id="nodes">Nodes</h2>
        <Table caption="Nodes" columns={NODES} rows={tables.nodes} text={(row, name) => `${name} ${row.rack} ${row.zone} ${row.taints.join(" ")}`} empty="No node has joined." by="Node" />
      </section>
      <section aria-labelledby="cards">
        <h2 id="cards">Cards</h2>
        <Table
          caption="Cards"
          columns={CARDS}
          rows={tables.cards}
          text={(row, id) => `${id} ${row.model} ${row.pool} ${row.holders.map((one) => `${one.request} ${one.name} ${one.tenant}`).join(" ")}`}
          empty="There is no card."
          by="Card"
        />
      </section>
    </>
  );
}

const QUEUED: Column<QueuedRow>[] = [
  { name: "Request", show: (row, id) => <><To view="request" id={id}>{id}</To> {row.name}</>, sort: (row, id) => row.name || id },
  { name: "Why it waits", show: (row) => row.sentence, under: true },
  { name: "Tenant", show: (row) => row.tenant, sort: (row) => row.tenant },
  { name: "Asked for", show: (row) => row.asked, minor: true },
  { name: "Since", show: (row) => moment(row.since), sort: (row) => row.since, minor: true },
];
const RESERVED: Column<ReservationRow>[] = [
  { name: "Reservation", show: (_row, id) => <To view="request" id={id.split(" ")[0]}>{id.split(" ")[0]}</To>, sort: (_row, id) => id },
  { name: "Tenant", show: (row) => row.tenant, sort: (row) => row.tenant },
  { name: "Where", show: (row) => `${row.node}/${row.ordinals.join(",")}`, sort: (row) => row.node },
  { name: "Each card", show: (row) => (row.whole ? "whole" : `${share(row.share_ppm)} ${bytes(row.memory_bytes)}`), right: true },
  { name: "Until", show: (row) => moment(row.ends_at), sort: (row) => row.ends_at },
];

export function Queue() {
  const { tables } = useShown();
  const others = (tables.cluster?.[""] as ClusterRow | undefined)?.others_waiting ?? 0;
  return (
    <>
      <Table caption="Queue" columns={QUEUED} rows={tables.waiting} empty="Nobody waits for cards." text={(row, id) => `${id} ${row.name} ${row.tenant} ${row.asked}`} />
      {others > 0 && <p class="note">{others} of other tenants wait too.</p>}
      <section aria-labelledby="reservations">
        <h2 id="reservations">Reservations</h2>
        <Table caption="Reservations" columns={RESERVED} rows={tables.reservations} empty="There is no reservation." />
      </section>
    </>
  );
}

const PATHS: Column<PathRow>[] = [
  { name: "From", show: (row) => row.client, sort: (row) => row.client },
  { name: "To", show: (row) => row.server, sort: (row) => row.server },
  { name: "Transport", show: (row) => row.transport, sort: (row) => row.transport },
  { name: "Round trip", show: (row) => roundTrip(row.round_trip_ns), sort: (row) => row.round_trip_ns, right: true },
  { name: "Up", show: (row) => rate(row.up_rate), sort: (row) => row.up_rate, right: true },
  { name: "Down", show: (row) => rate(row.down_rate), sort: (row) => row.down_rate, right: true },
  { name: "Measured", show: (row) => moment(row.measured_at), sort: (row) => row.measured_at, minor: true },
];

export function Paths() {
  return <Table caption="Paths" columns={PATHS} rows={useShown().tables.paths} empty="No path was measured yet: the manager measures between nodes." />;
}

export function Events({ refusals }: { refusals?: boolean }) {
  const rows = usePart<ClusterEventRow>("events", (one) => !refusals || one.refusal, refusals ? "refusals" : "all");
  return <EventTable rows={rows} empty={refusals ? "Nothing was refused." : undefined} />;
}

export function Request({ id }: { id: string }) {
  const { tables } = useShown();
  const [told, setTold] = useState<Explanation | null>(null);
  const [why, setWhy] = useState("");
  const events = usePart<ClusterEventRow>("events", (one) => one.request === id, id);
  const moved = `${Object.keys(events).length} ${JSON.stringify(tables.waiting?.[id] ?? "")}`;
  useEffect(() => {
    let left = false;
    ask<Explanation>("explain", { request: id })
      .then((found) => !left && (setTold(found), setWhy("")))
      .catch((error: Error) => !left && (setTold(null), setWhy(error.message)));
    return () => void (left = true);
  }, [id, moved]);
  return (
    <>
      {told ? <Decision id={id} told={told} /> : why ? <p class="note">{why}</p> : <Gone what={`Request ${id}`} />}
      <section aria-labelledby="events">
        <h2 id="events">Events of the request</h2>
        <EventTable rows={events} />
      </section>
    </>
  );
}

function Decision({ id, told }: { id: string; told: Explanation }) {
  const reserved = Object.keys(useShown().tables.reservations ?? {}).some((key) => key.startsWith(`${id} `));
  return (
    <>
      {told.state !== "gone" && (
        <div class="orders" role="group" aria-label="Orders about this request">
          <Order label={reserved ? "Release" : "End"} title={`${reserved ? "Release" : "End"} ${id}?`} name={reserved ? "release" : "withdraw"} fields={{ request: id }} danger>
            <p>{told.state === "waiting" ? "The request leaves the queue, and its program does not start." : "Its leases end now. The programs in them lose their cards and what they have there."}</p>
          </Order>
        </div>
      )}
      <Facts
        rows={[
          ["Asked for", told.asked],
          ["State", told.state],
          ["Why", told.sentence],
          ["Decided", told.decided_at ? `${moment(told.decided_at)}, ${duration(Date.now() / 1000 - told.decided_at)} ago` : ""],
          ["Placed", told.attempt > 1 ? `${told.attempt} times` : ""],
        ]}
      />
      {told.gives.length > 0 && (
        <section>
          <h2>What others gave</h2>
          <ul>{told.gives.map((sentence) => <li>{sentence}</li>)}</ul>
        </section>
      )}
      {told.chosen && <Places title="Chosen place" places={[told.chosen]} />}
      {told.others.length > 0 && <Places title="Other possible places" places={told.others} />}
      {told.excluded.length > 0 && (
        <section>
          <h2>Excluded cards</h2>
          <ul>{told.excluded.map((one) => <li>{one.cards} card{one.cards === 1 ? "" : "s"}: each {one.reason}</li>)}</ul>
        </section>
      )}
    </>
  );
}

const PLACES: Column<Alternative>[] = [
  { name: "Cards", show: (row) => <>{row.cards.join(", ")}{row.equal > 0 && ` (and ${row.equal} as good)`}</> },
  { name: "Reach", show: (row) => row.reach },
  { name: "Transport", show: (row) => (row.measured ? row.transport : "not measured") },
  { name: "Slowdown", show: (row) => share(row.slowdown_ppm), right: true },
  { name: "Score", show: (row) => (row.score.total / 1e6).toFixed(3), right: true },
  { name: "Of which", show: (row) => Object.entries(row.score).filter(([name, value]) => name !== "total" && value).map(([name, value]) => `${name} ${(value / 1e6).toFixed(3)}`).join(", "), under: true },
];

function Places({ title, places }: { title: string; places: Alternative[] }) {
  return (
    <section>
      <h2>{title}</h2>
      <Table caption={title} columns={PLACES} rows={Object.fromEntries(places.map((place, index) => [String(index), place]))} empty="" />
    </section>
  );
}
