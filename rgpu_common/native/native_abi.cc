#include "rgpu_common/native/native_abi.h"

#include <algorithm>
#include <iterator>

#include "gen/handshake.gen.h"
#include "rgpu_common/native/lease/page.h"
#include "rgpu_common/native/lease/token.h"
#include "rgpu_common/native/native_round_trip.h"
#include "rgpu_common/native/probe/message.h"

namespace {

using rgpu::lease::Page;

Page* AsPage(void* page) { return static_cast<Page*>(page); }
const Page* AsPage(const void* page) { return static_cast<const Page*>(page); }

}  // namespace

uint32_t rgpu_lease_page_bytes(void) { return rgpu::lease::kPageBytes; }
uint32_t rgpu_lease_grant_bytes(void) { return rgpu::lease::kGrantBytes; }
void* rgpu_lease_map(int grants_fd, int usage_fd, int write_grants) {
  return rgpu::lease::MapPage(grants_fd, usage_fd, write_grants != 0);
}
void rgpu_lease_unmap(void* page) { rgpu::lease::UnmapPage(AsPage(page)); }
uint32_t rgpu_lease_slots(void) { return rgpu::lease::kSlots; }
void rgpu_lease_page_init(void* page, uint64_t memory_limit_bytes) {
  rgpu::lease::InitPage(AsPage(page), memory_limit_bytes);
}
int rgpu_lease_page_valid(const void* page) { return rgpu::lease::IsPage(AsPage(page)) ? 1 : 0; }
int rgpu_lease_charge(void* page, uint32_t slot, uint64_t bytes) {
  return rgpu::lease::Charge(AsPage(page), slot, bytes) ? 1 : 0;
}
int rgpu_lease_charge_before(void* page, uint32_t slot, uint64_t bytes) {
  constexpr auto kLater = rgpu::lease::Peak::kLater;
  rgpu::lease::Page* lease = AsPage(page);
  const auto charge = [&] { return rgpu::lease::TryCharge(lease, slot, bytes, kLater); };
  const bool fits = bytes <= lease->memory_limit_bytes.load();
  if (fits && rgpu::lease::WaitForOthers(lease, slot, charge)) return 1;
  return rgpu::lease::Charge(lease, slot, bytes, kLater) ? 1 : 0;  // counts the refusal
}
void rgpu_lease_raise_peak(void* page, uint32_t slot) {
  rgpu::lease::RaisePeak(AsPage(page), slot);
}
int rgpu_lease_await_room(void* page, uint32_t slot, uint64_t bytes) {
  const rgpu::lease::Page* lease = AsPage(page);
  const auto roomy = [&] {
    const uint64_t limit = lease->memory_limit_bytes.load();
    const uint64_t used = rgpu::lease::AllocatedBytes(lease);
    return used <= limit && bytes <= limit - used;
  };
  const bool fits = bytes <= lease->memory_limit_bytes.load();
  return fits && rgpu::lease::WaitForOthers(AsPage(page), slot, roomy) ? 1 : 0;
}
void rgpu_lease_count(void* page, uint32_t slot, uint64_t bytes) {
  rgpu::lease::Count(AsPage(page), slot, bytes);
}
void rgpu_lease_release(void* page, uint32_t slot, uint64_t bytes) {
  rgpu::lease::Release(AsPage(page), slot, bytes);
}
uint64_t rgpu_lease_used(const void* page) { return rgpu::lease::AllocatedBytes(AsPage(page)); }
uint64_t rgpu_lease_charged(const void* page) { return rgpu::lease::UsedBytes(AsPage(page)); }
int rgpu_lease_claim_slot(void* page, uint64_t session) {
  return rgpu::lease::ClaimSlot(AsPage(page), session);
}
void rgpu_lease_clear_slot(void* page, uint32_t slot) {
  rgpu::lease::ClearSlot(AsPage(page), slot);
}
void rgpu_lease_set_limit(void* page, uint64_t memory_limit_bytes) {
  rgpu::lease::Page* lease = AsPage(page);
  lease->memory_limit_bytes = memory_limit_bytes;
  if (rgpu::lease::UsedBytes(lease) > memory_limit_bytes) rgpu::lease::WantCredit(lease);
}
uint64_t rgpu_lease_limit(const void* page) { return AsPage(page)->memory_limit_bytes; }
void rgpu_lease_set_shares(void* page, uint32_t request_ppm, uint32_t limit_ppm) {
  AsPage(page)->share_request_ppm = request_ppm;
  AsPage(page)->share_limit_ppm = limit_ppm;
}
void rgpu_lease_set_state(void* page, uint32_t state) { AsPage(page)->state = state; }

int rgpu_lease_read_slot(const void* page, uint32_t slot, uint64_t values[9]) {
  if (slot >= rgpu::lease::kSlots) return 0;
  const rgpu::lease::Slot& s = AsPage(page)->slots[slot];
  const std::atomic<uint64_t>* fields[] = {&s.session,  &s.used_bytes, &s.peak_bytes,
                                           &s.launches, &s.copy_bytes, &s.busy_ns,
                                           &s.refused,  &s.copies,     &s.gate.held_back_ns};
  for (size_t i = 0; i < std::size(fields); ++i) values[i] = fields[i]->load();
  values[1] = rgpu::lease::AllocatedBytes(s, AsPage(page)->credit_bytes[slot].load());
  return 1;
}

uint64_t rgpu_lease_slot_charged(const void* page, uint32_t slot) {
  return slot < rgpu::lease::kSlots ? AsPage(page)->slots[slot].used_bytes.load() : 0;
}

int rgpu_lease_compiling(const void* page, uint32_t slot) {
  return rgpu::lease::IsCompiling(AsPage(page), slot) ? 1 : 0;
}

void rgpu_token_write(void* page, uint32_t phase, uint64_t generation, uint64_t start_ns,
                      uint64_t slice_ns) {
  rgpu::lease::WriteGrant(
      AsPage(page), {generation, static_cast<rgpu::lease::Phase>(phase), start_ns, slice_ns, 0});
}
void rgpu_token_read(const void* page, uint64_t values[4]) {
  const rgpu::lease::Grant grant = rgpu::lease::ReadGrant(AsPage(page));
  values[0] = static_cast<uint64_t>(grant.phase);
  values[1] = grant.generation;
  values[2] = grant.start_ns;
  values[3] = grant.slice_ns;
}
void rgpu_token_heartbeat(void* page, uint64_t now_ns) {
  AsPage(page)->token.heartbeat_ns = now_ns;
}
void rgpu_token_demand(const void* page, uint64_t generation, uint64_t slots, uint64_t values[11]) {
  const rgpu::lease::Demand d = rgpu::lease::ReadDemand(AsPage(page), generation, slots);
  const uint64_t all[] = {d.workers,      d.active,          d.wanting,      d.near_end,
                          d.spent,        d.kernel_us,       d.in_flight_ns, d.busy_ns,
                          d.held_back_ns, d.oldest_alive_ns, d.drained_ns};
  std::copy(std::begin(all), std::end(all), values);
}
void rgpu_token_write_slot(void* page, uint32_t slot, const uint64_t values[9]) {
  if (slot >= rgpu::lease::kSlots) return;
  rgpu::lease::SlotGate& gate = AsPage(page)->slots[slot].gate;
  gate.near_end_gen = values[1];
  gate.spent_gen = values[2];
  gate.wants = static_cast<uint32_t>(values[3]);
  gate.kernel_us = static_cast<uint32_t>(values[4]);
  gate.in_flight_ns = values[5];
  gate.alive_ns = values[6];
  gate.held_back_ns = values[7];
  gate.drained_ns = values[8];
  gate.active_gen = values[0];
}
int rgpu_token_read_slot(const void* page, uint32_t slot, uint64_t values[10]) {
  if (slot >= rgpu::lease::kSlots) return 0;
  const rgpu::lease::Slot& from = AsPage(page)->slots[slot];
  const rgpu::lease::SlotGate& gate = from.gate;
  const uint64_t all[10] = {from.session,      gate.active_gen, gate.near_end_gen, gate.spent_gen,
                            gate.wants,        gate.kernel_us,  gate.in_flight_ns, gate.alive_ns,
                            gate.held_back_ns, gate.drained_ns};
  std::copy(std::begin(all), std::end(all), values);
  return 1;
}
void rgpu_token_wait(const void* page, uint32_t futex, uint64_t timeout_ns) {
  rgpu::lease::WaitGrant(AsPage(page), futex, timeout_ns);
}
uint32_t rgpu_token_futex(const void* page) { return rgpu::lease::ReadGrant(AsPage(page)).futex; }

int64_t rgpu_wire_handshake(uint16_t opcode, const uint8_t* head, size_t bytes, uint8_t* out,
                            size_t capacity) {
  using rgpu::wire::Handshake;
  switch (static_cast<Handshake>(opcode)) {
    case Handshake::kHello:
      return RoundTrip<rgpu::wire::Hello>(head, bytes, out, capacity);
    case Handshake::kWelcome:
      return RoundTrip<rgpu::wire::Welcome>(head, bytes, out, capacity);
    case Handshake::kRefused:
      return RoundTrip<rgpu::wire::Refused>(head, bytes, out, capacity);
    case Handshake::kAttach:
      return RoundTrip<rgpu::wire::Attach>(head, bytes, out, capacity);
    case Handshake::kAttached:
      return bytes == 0 ? 0 : -1;
    case Handshake::kProbe:
      return RoundTrip<rgpu::probe::Offer>(head, bytes, out, capacity);
    case Handshake::kResume:
      return RoundTrip<rgpu::wire::Resume>(head, bytes, out, capacity);
    case Handshake::kResumed:
      return RoundTrip<rgpu::wire::Resumed>(head, bytes, out, capacity);
    case Handshake::kPreface:
      return RoundTrip<rgpu::wire::Preface>(head, bytes, out, capacity);
    case Handshake::kShm:
      return RoundTrip<rgpu::wire::Shm>(head, bytes, out, capacity);
    case Handshake::kObserve:
      return RoundTrip<rgpu::wire::Observe>(head, bytes, out, capacity);
    case Handshake::kObserved:
      return RoundTrip<rgpu::wire::Observed>(head, bytes, out, capacity);
    case Handshake::kClaimed:
    case Handshake::kPlace:
      break;  // only Python reads and writes the messages of claims
  }
  return -2;
}

int rgpu_wire_header(const uint8_t* header) {
  rgpu::wire::FrameHeader parsed;
  return rgpu::wire::ParseHeader(header, &parsed) ? 1 : 0;
}
