// The rows that a server and a manager send (rgpu_server/web/rows.py, rgpu_cluster/manager/web.py).

export interface ServerRow {
  at: number;
  draining: boolean;
  ends_at: number;
  enforced: boolean;
  others_waiting: number;
}

export interface DeviceRow {
  name: string;
  uuid: string;
  kind: string;
  mig: string;
  pool: string;
  memory_bytes: number;
  leased_memory_bytes: number;
  used_memory_bytes: number;
  leased_share_ppm: number;
  share_1s_ppm: number;
  share_10s_ppm: number;
  lent_ppm: number;
  switches_per_second: number;
  leases: number;
  sessions: number;
}

export interface LeaseRow {
  tenant: string;
  key: string;
  name: string;
  device: number;
  state: string;
  explicit: boolean;
  policy: string;
  priority: number;
  weight: number;
  asked_ppm: number;
  share_request_ppm: number;
  share_limit_ppm: number;
  share_1s_ppm: number;
  share_10s_ppm: number;
  lent_ppm: number;
  waiting_ppm: number;
  throttled_ppm: number;
  memory_limit_bytes: number;
  memory_used_bytes: number;
  memory_peak_bytes: number;
  refused_allocations: number;
  launches_per_second: number;
  copied_bytes_per_second: number;
  device_seconds: number;
  launches: number;
  copied_bytes: number;
  sessions: number;
  seams: string[];
  compiling: number;
  borrowed_share: boolean;
  borrowed_memory: boolean;
  ends_at: number;
  reclaim_at: number;
}

export interface SessionRow {
  tenant: string;
  lease: string;
  key: string;
  device: number;
  state: string;
  program: string;
  client_pid: number;
  worker_pid: number;
  peer: string;
  transport: string;
  round_trip_ns: number;
  seam: string;
  compiling: boolean;
  since: number;
  memory_used_bytes: number;
  memory_peak_bytes: number;
  refused_allocations: number;
  launches: number;
  copied_bytes: number;
}

export interface WaitingRow {
  tenant: string;
  key: string;
  name: string;
  devices: number[];
  memory_bytes: number;
  share_request_ppm: number;
  place: number;
  waiting: number;
  since: number;
  reason: string;
  origin: string;
}

export interface TenantRow {
  tenant: string;
  model: string;
  owned: [number, number] | null;
  ceiling: [number | null, number | null];
  held: [number, number];
  borrowed: [number, number];
  idle: [number, number];
  leases: number;
}

export interface EventRow {
  at: number;
  event: string;
  refusal: boolean;
  tenant: string;
  lease: string;
  session: number;
  sentence: string;
}

export interface Series {
  tenant: string;
  lease: string;
  device: number;
  leases: number[];
  share_ppm: number[];
  request_ppm: number[];
  limit_ppm: number[];
  waiting_ppm: number[];
  memory_used_bytes: number[];
  memory_limit_bytes: number[];
}

export interface Record_ {
  start_seconds: number;
  step_seconds: number;
  steps: number;
  series: Series[];
}

// A manager's

export interface ClusterRow {
  at: number;
  others_waiting: number;
}

export interface NodeRow {
  address: string;
  rack: string;
  zone: string;
  nic: string;
  bandwidth_bps: number;
  free_bandwidth_bps: number;
  taints: string[];
  connected: boolean;
  cards: number;
  // Of a node that has gone: when it was heard of last; else 0.
  silent_since: number;
}

export interface CardRow {
  node: string;
  ordinal: number;
  model: string;
  mig: string;
  pool: string;
  memory_bytes: number;
  leased_ppm: number;
  leased_bytes: number;
  used_ppm: number;
  used_bytes: number;
  holders: Holder[];
  others: number;
}

export interface Holder {
  request: string;
  name: string;
  tenant: string;
  share_ppm: number;
  memory_bytes: number;
  whole: boolean;
  wanted_ppm: number;
  wanted_bytes: number;
  ends_at: number;
}

export interface QueuedRow {
  tenant: string;
  name: string;
  asked: string;
  since: number;
  sentence: string;
}

export interface ReservationRow {
  tenant: string;
  node: string;
  ordinals: number[];
  share_ppm: number;
  memory_bytes: number;
  whole: boolean;
  ends_at: number;
  connected: boolean;
}

export interface PathRow {
  client: string;
  server: string;
  transport: string;
  round_trip_ns: number;
  up_rate: number;
  down_rate: number;
  measured_at: number;
}

export interface ClusterEventRow {
  at: number;
  event: string;
  refusal: boolean;
  node: string;
  request: string;
  name: string;
  sentence: string;
}

export interface Alternative {
  cards: string[];
  reach: string;
  slowdown_ppm: number;
  transport: string;
  measured: boolean;
  equal: number;
  score: Record<string, number>;
}

export interface Explanation {
  request: string;
  asked: string;
  state: string;
  sentence: string;
  decided_at: number;
  attempt: number;
  chosen: Alternative | null;
  others: Alternative[];
  excluded: { reason: string; cards: number; classes: number }[];
  gives: string[];
}
