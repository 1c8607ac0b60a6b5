// The views of one server.

import { Chart } from "./chart";
import { Field, Order } from "./dialog";
import { DrainOrder } from "./draining";
import { bytes, called, duration, exactShare, moment, rate, roundTrip, share } from "./format";
import { useHistory } from "./history";
import { Badge, Facts, FillBar, Gone, ShareBar, To } from "./parts";
import type { DeviceRow, EventRow, LeaseRow, ServerRow, SessionRow, TenantRow, WaitingRow } from "./rows";
import { useShown } from "./store";
import { type Column, Table } from "./table";
import { EventTable, usePart } from "./events";

export function Overview() {
  const { tables } = useShown();
  const server = tables.server?.[""] as ServerRow | undefined;
  const devices = Object.entries((tables.devices ?? {}) as Record<string, DeviceRow>);
  const waiting = Object.keys(tables.waiting ?? {}).length + (server?.others_waiting ?? 0);
  return (
    <>
      {server?.draining && (
        <p class="note warn" role="status">
          The server drains: it takes nothing new.{" "}
          {server.ends_at ? `What runs ends at ${moment(server.ends_at)} at the latest.` : "What runs goes on."}
        </p>
      )}
      {server && !server.enforced && <p class="note">Shares are recorded and not enforced (quota.enforce).</p>}
      {waiting > 0 && <p class="note"><To view="queue">{waiting} waiting for room</To></p>}
      <section aria-labelledby="devices">
        <h2 id="devices">Devices</h2>
        <div class="cards">
          {devices.map(([ordinal, row]) => <Device key={ordinal} ordinal={ordinal} row={row} />)}
        </div>
      </section>
      <section aria-labelledby="leases">
        <h2 id="leases">Leases</h2>
        <LeaseTable rows={tables.leases} />
      </section>
    </>
  );
}

function Device({ ordinal, row }: { ordinal: string; row: DeviceRow }) {
  const history = useHistory({ device: Number(ordinal) });
  return (
    <article class="card" aria-labelledby={`device-${ordinal}`}>
      <h3 id={`device-${ordinal}`}>
        {ordinal}: {row.name} {row.mig && <Badge kind="plain">{row.mig}</Badge>} <code class="minor">{row.uuid}</code>
      </h3>
      <Facts
        rows={[
          ["Busy", <>{share(row.share_1s_ppm)} <ShareBar got={row.share_1s_ppm} guaranteed={row.leased_share_ppm} /></>],
          ["Memory", <>{bytes(row.used_memory_bytes)} used, {bytes(row.leased_memory_bytes)} leased, of {bytes(row.memory_bytes)} <FillBar used={row.used_memory_bytes} whole={row.memory_bytes} name="the device's memory" /></>],
          ["Guaranteed", share(row.leased_share_ppm)],
          ["Lent", share(row.lent_ppm)],
          ["Leases", row.leases],
          ["Sessions", row.sessions],
          ["Switches", `${row.switches_per_second} a second`],
          ["Pool", row.pool],
        ]}
      />
      <div class="charts">
        <ShareChart title={`Shares of device ${ordinal}`} history={history} />
        <MemoryChart title={`Memory of device ${ordinal}`} history={history} most="Leased" top={row.memory_bytes} />
      </div>
    </article>
  );
}

type Lines = ReturnType<typeof useHistory>;

function ShareChart({ title, history, limit }: { title: string; history: Lines; limit?: boolean }) {
  return (
    <Chart
      title={title}
      times={history.times}
      show={share}
      top={1e6}
      lines={[
        { name: "Got", colour: "c-got", fill: true, values: history.got },
        { name: "Lent", colour: "c-lent", fill: true, values: history.lent },
        { name: "Guaranteed", colour: "c-guaranteed", dash: true, values: history.guaranteed },
        { name: "Asked", colour: "c-asked", dash: true, values: history.asked },
        { name: limit ? "Waiting" : "Waiting (sum)", colour: "c-waiting", values: history.waiting },
        ...(limit ? [{ name: "Limit", colour: "soft", dash: true, values: history.limit }] : []),
      ]}
    />
  );
}

function MemoryChart({ title, history, most, top }: { title: string; history: Lines; most: string; top: number }) {
  return (
    <Chart
      binary
      top={top}
      title={title}
      times={history.times}
      show={(value) => bytes(Math.round(value))}
      lines={[
        { name: "Used", colour: "c-memory", fill: true, values: history.used },
        { name: most, colour: "c-guaranteed", dash: true, values: history.most },
      ]}
    />
  );
}

const LEASES: Column<LeaseRow>[] = [
  { name: "Lease", show: (row, id) => <To view="lease" id={id}>{called(row, id)}</To>, sort: (row, id) => called(row, id) },
  { name: "Tenant", show: (row) => row.tenant, sort: (row) => row.tenant },
  { name: "Device", show: (row) => row.device, sort: (row) => row.device, minor: true, right: true },
  { name: "State", show: (row) => <State row={row} />, sort: (row) => row.state, minor: true },
  { name: "Share", show: (row) => <ShareBar got={row.share_1s_ppm} guaranteed={row.share_request_ppm} limit={row.share_limit_ppm} waits={row.waiting_ppm} /> },
  { name: "Got", show: (row) => share(row.share_1s_ppm), sort: (row) => row.share_1s_ppm, right: true },
  { name: "Guaranteed", show: (row) => share(row.share_request_ppm), sort: (row) => row.share_request_ppm, right: true, minor: true },
  { name: "Asked", show: (row) => share(row.asked_ppm), sort: (row) => row.asked_ppm, right: true, minor: true },
  { name: "Lent", show: (row) => share(row.lent_ppm), sort: (row) => row.lent_ppm, right: true, minor: true },
  { name: "Limit", show: (row) => share(row.share_limit_ppm), sort: (row) => row.share_limit_ppm, right: true, minor: true },
  { name: "Waiting", show: (row) => share(row.waiting_ppm), sort: (row) => row.waiting_ppm, right: true, minor: true },
  { name: "Memory", show: (row) => `${bytes(row.memory_used_bytes)} of ${bytes(row.memory_limit_bytes)}`, sort: (row) => row.memory_used_bytes, right: true, minor: true },
  { name: "Launches/s", show: (row) => row.launches_per_second, sort: (row) => row.launches_per_second, right: true, minor: true },
  { name: "Sessions", show: (row) => row.sessions, sort: (row) => row.sessions, right: true, minor: true },
];

function State({ row }: { row: LeaseRow }) {
  if (row.state === "paused") return <Badge kind="warn">paused</Badge>;
  if (row.reclaim_at) return <Badge kind="bad">ends {moment(row.reclaim_at)}</Badge>;
  if (row.compiling) return <Badge kind="plain">compiling</Badge>;
  return <Badge kind={row.state === "active" ? "good" : "plain"}>{row.state}</Badge>;
}

function LeaseTable({ rows }: { rows: Record<string, LeaseRow> | undefined }) {
  return (
    <Table
      caption="Leases"
      columns={LEASES}
      rows={rows}
      text={(row, id) => `${id} ${row.name} ${row.key} ${row.tenant} ${row.state} device ${row.device} ${row.seams.join(" ")}`}
      empty="There is no lease."
    />
  );
}

export function Lease({ id }: { id: string }) {
  const { tables } = useShown();
  const row = tables.leases?.[id] as LeaseRow | undefined;
  return (
    <>
      {row ? <LeaseFacts id={id} row={row} /> : <Gone what={`Lease ${id}`} />}
      <section aria-labelledby="sessions">
        <h2 id="sessions">Sessions of the lease</h2>
        <SessionTable rows={usePart<SessionRow>("sessions", (one) => one.lease === id, id)} />
      </section>
      <section aria-labelledby="events">
        <h2 id="events">Events of the lease</h2>
        <EventTable rows={usePart<EventRow>("events", (one) => one.lease === id, id)} server />
      </section>
    </>
  );
}

function LeaseFacts({ id, row }: { id: string; row: LeaseRow }) {
  const history = useHistory({ lease: id });
  const paused = row.state === "paused";
  return (
    <>
      <div class="orders" role="group" aria-label="Orders about this lease">
        {paused ? (
          <Order label="Resume" title={`Resume ${called(row, id)}?`} name="resume" fields={{ lease: id }}>
            <p>Its programs get device time again.</p>
          </Order>
        ) : (
          <Order label="Pause" title={`Pause ${called(row, id)}?`} name="pause" fields={{ lease: id }}>
            <p>Its programs keep their memory and wait until the lease is resumed.</p>
          </Order>
        )}
        <Resize id={id} row={row} />
        <Order label="Revoke" title={`Revoke ${called(row, id)}?`} name="revoke" fields={{ lease: id }} danger>
          <p>The lease of tenant <b>{row.tenant}</b> ends now, with {row.sessions} session{row.sessions === 1 ? "" : "s"}. Its programs lose the device and what they have there.</p>
        </Order>
      </div>
      <Facts
        rows={[
          ["Lease", <code>{id}</code>],
          ["Tenant", row.tenant],
          ["Device", row.device],
          ["State", <State row={row} />],
          ["Policy", row.policy],
          ["Share", <>{share(row.share_1s_ppm)} got, {exactShare(row.share_request_ppm)} guaranteed, {exactShare(row.asked_ppm)} asked, limit {exactShare(row.share_limit_ppm)} <ShareBar got={row.share_1s_ppm} guaranteed={row.share_request_ppm} limit={row.share_limit_ppm} waits={row.waiting_ppm} /></>],
          ["Last 10 s", share(row.share_10s_ppm)],
          ["Waiting", `${share(row.waiting_ppm)} of the last second${row.throttled_ppm ? `; at its limit ${share(row.throttled_ppm)}` : ""}`],
          ["Memory", <>{bytes(row.memory_used_bytes)} of {bytes(row.memory_limit_bytes)}, at most {bytes(row.memory_peak_bytes)} <FillBar used={row.memory_used_bytes} whole={row.memory_limit_bytes} name="its memory" /></>],
          ["Allocations refused", row.refused_allocations || ""],
          ["Device time", duration(row.device_seconds)],
          ["Launches", `${row.launches} (${row.launches_per_second} a second)`],
          ["Copied", `${bytes(row.copied_bytes)}${row.copied_bytes_per_second ? ` (${rate(row.copied_bytes_per_second)})` : ""}`],
          ["Seams", row.seams.join(", ")],
          ["Priority, weight", `${row.priority}, ${row.weight}`],
          ["Borrowed", [row.borrowed_share && "share", row.borrowed_memory && "memory"].filter(Boolean).join(" and ")],
          ["Ends", row.ends_at ? `${moment(row.ends_at)} unless it is kept alive` : ""],
          ["Taken back", row.reclaim_at ? moment(row.reclaim_at) : ""],
        ]}
      />
      <div class="charts">
        <ShareChart title="Shares of the lease" history={history} limit />
        <MemoryChart title="Memory of the lease" history={history} most="Limit" top={row.memory_limit_bytes} />
      </div>
    </>
  );
}

function Resize({ id, row }: { id: string; row: LeaseRow }) {
  const was: Record<string, string> = {
    memory: bytes(row.memory_limit_bytes).replace(" ", ""),
    share: exactShare(row.share_request_ppm),
    limit: exactShare(row.share_limit_ppm),
  };
  // What the form leaves as it was is not sent, so that rounding changes nothing.
  function read(form: FormData): Record<string, unknown> {
    const fields: Record<string, unknown> = { kill: form.get("kill") === "on" };
    for (const name of Object.keys(was)) {
      const text = String(form.get(name) ?? "").trim();
      if (text && text !== was[name]) fields[name] = text;
    }
    return fields;
  }
  return (
    <Order label="Resize" title={`Resize ${called(row, id)}`} name="resize" fields={{ lease: id }} read={read}>
      <Field label="Memory" name="memory" value={was.memory} hint={`In use: ${bytes(row.memory_used_bytes)}`} />
      <Field label="Guaranteed share" name="share" value={was.share} />
      <Field label="Limit" name="limit" value={was.limit} />
      <p class="field">
        <label><input type="checkbox" name="kill" /> End sessions, the largest first, if they use more than the new memory</label>
      </p>
    </Order>
  );
}

const SESSIONS: Column<SessionRow>[] = [
  { name: "Session", show: (_row, id) => <To view="session" id={id}>{id}</To>, sort: (_row, id) => Number(id) },
  { name: "Program", show: (row) => row.program, sort: (row) => row.program },
  { name: "Tenant", show: (row) => row.tenant, sort: (row) => row.tenant, minor: true },
  { name: "Lease", show: (row) => <To view="lease" id={row.lease}>{row.key || row.lease}</To>, sort: (row) => row.key, minor: true },
  { name: "Path", show: (row) => row.transport, sort: (row) => row.transport },
  { name: "Round trip", show: (row) => roundTrip(row.round_trip_ns), sort: (row) => row.round_trip_ns, right: true },
  { name: "Seam", show: (row) => row.seam, sort: (row) => row.seam },
  { name: "From", show: (row) => row.peer, sort: (row) => row.peer, minor: true },
  { name: "State", show: (row) => <Badge kind={row.state === "open" ? "good" : "warn"}>{row.state}</Badge>, sort: (row) => row.state, minor: true },
  { name: "Memory", show: (row) => bytes(row.memory_used_bytes), sort: (row) => row.memory_used_bytes, right: true },
  { name: "Launches", show: (row) => row.launches, sort: (row) => row.launches, right: true, minor: true },
  { name: "Since", show: (row) => moment(row.since), sort: (row) => row.since, minor: true, short: true },
];

function SessionTable({ rows }: { rows: Record<string, SessionRow> | undefined }) {
  return (
    <Table
      caption="Sessions"
      columns={SESSIONS}
      rows={rows}
      text={(row, id) => `${id} ${row.program} ${row.tenant} ${row.key} ${row.transport} ${row.seam} ${row.peer}`}
      empty="There is no session."
    />
  );
}

export function Sessions() {
  return <SessionTable rows={useShown().tables.sessions} />;
}

export function Session({ id }: { id: string }) {
  const row = useShown().tables.sessions?.[id] as SessionRow | undefined;
  const events = usePart<EventRow>("events", (one) => String(one.session) === id, id);
  return (
    <>
      {row ? (
        <Facts
          rows={[
            ["Program", `${row.program} (process ${row.client_pid})`],
            ["Tenant", row.tenant],
            ["Lease", <To view="lease" id={row.lease}>{row.key || row.lease}</To>],
            ["Device", row.device],
            ["State", row.compiling ? `${row.state}, compiling` : row.state],
            ["Path", `${row.transport} from ${row.peer}`],
            ["Round trip", roundTrip(row.round_trip_ns) || "unknown: the server measures it for tcp: alone"],
            ["Seam", row.seam],
            ["Since", moment(row.since)],
            ["Memory", `${bytes(row.memory_used_bytes)}, at most ${bytes(row.memory_peak_bytes)}`],
            ["Allocations refused", row.refused_allocations || ""],
            ["Launches", row.launches],
            ["Copied", bytes(row.copied_bytes)],
            ["Worker", row.worker_pid ? `process ${row.worker_pid}` : ""],
          ]}
        />
      ) : (
        <Gone what={`Session ${id}`} />
      )}
      <section aria-labelledby="events">
        <h2 id="events">Events of the session</h2>
        <EventTable rows={events} server />
      </section>
    </>
  );
}

const WAITING: Column<WaitingRow>[] = [
  { name: "Place", short: true, show: (row) => `${row.place} of ${row.waiting}`, sort: (row) => row.place },
  { name: "Tenant", show: (row) => row.tenant, sort: (row) => row.tenant },
  { name: "Lease", show: (row) => called(row, row.key), sort: (row) => called(row, row.key), minor: true },
  { name: "Share", show: (row) => share(row.share_request_ppm), sort: (row) => row.share_request_ppm, right: true },
  { name: "Memory", show: (row) => bytes(row.memory_bytes), sort: (row) => row.memory_bytes, right: true },
  { name: "Devices", show: (row) => row.devices.join(", "), minor: true },
  { name: "Since", show: (row) => moment(row.since), sort: (row) => row.since, minor: true, short: true },
  { name: "From", show: (row) => row.origin, sort: (row) => row.origin, minor: true },
  { name: "Waits for", show: (row) => row.reason },
];

export function Queue() {
  const { tables } = useShown();
  const others = (tables.server?.[""] as ServerRow | undefined)?.others_waiting ?? 0;
  return (
    <>
      <Table caption="Queue" columns={WAITING} rows={tables.waiting} empty="Nobody waits for room." />
      {others > 0 && <p class="note">{others} of other tenants wait too.</p>}
    </>
  );
}

const pair = ([ppm, count]: [number, number]) => `${share(ppm)} ${bytes(count)}`;
const ceiling = ([ppm, count]: [number | null, number | null]) =>
  [ppm === null ? "" : share(ppm), count === null ? "" : bytes(count)].filter(Boolean).join(" ") || "none";
const TENANTS: Column<TenantRow>[] = [
  { name: "Tenant", show: (row) => row.tenant, sort: (row) => row.tenant },
  { name: "Model", show: (row) => row.model, sort: (row) => row.model },
  { name: "Owns", show: (row) => (row.owned ? pair(row.owned) : "no quota"), right: true },
  { name: "Ceiling", show: (row) => ceiling(row.ceiling), right: true, minor: true },
  { name: "Holds", show: (row) => pair(row.held), sort: (row) => row.held[0], right: true },
  { name: "Borrows", show: (row) => pair(row.borrowed), sort: (row) => row.borrowed[0], right: true },
  { name: "Idle", show: (row) => (row.owned ? pair(row.idle) : ""), right: true, minor: true },
  { name: "Leases", show: (row) => row.leases, sort: (row) => row.leases, right: true },
];

export function Tenants() {
  return <Table caption="Tenants" columns={TENANTS} rows={useShown().tables.tenants} empty="There is no tenant." text={(row) => row.tenant} />;
}

export function Events({ refusals }: { refusals?: boolean }) {
  const rows = usePart<EventRow>("events", (one) => !refusals || one.refusal, refusals ? "refusals" : "all");
  return <EventTable rows={rows} server empty={refusals ? "Nothing was refused." : undefined} />;
}

export function Operate() {
  const { tables, who } = useShown();
  const server = tables.server?.[""] as ServerRow | undefined;
  if (!who?.operator || !server) return null;
  return (
    <div class="orders" role="group" aria-label="Orders about the server">
      <DrainOrder what="this server" fields={{}} draining={server.draining} />
    </div>
  );
}

