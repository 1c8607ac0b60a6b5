#include "rgpu_common/native/native_abi.h"

#include <iterator>

#include "rgpu_common/native/lease/page.h"
#include "rgpu_common/native/wire/handshake.h"

namespace {

using rgpu::lease::Page;

Page* AsPage(void* page) { return static_cast<Page*>(page); }
const Page* AsPage(const void* page) { return static_cast<const Page*>(page); }

template <typename T>
int64_t RoundTrip(const uint8_t* head, size_t bytes, uint8_t* out, size_t capacity) {
  T message{};
  rgpu::wire::Reader reader(head, bytes);
  if (!rgpu::wire::Get(reader, &message)) return -1;
  std::vector<uint8_t> encoded;
  rgpu::wire::Writer writer(&encoded);
  rgpu::wire::Put(writer, message);
  if (encoded.size() > capacity) return -3;
  if (!encoded.empty()) std::memcpy(out, encoded.data(), encoded.size());
  return static_cast<int64_t>(encoded.size());
}

}  // namespace

uint32_t rgpu_lease_page_bytes(void) { return rgpu::lease::kPageBytes; }
uint32_t rgpu_lease_slots(void) { return rgpu::lease::kSlots; }
void rgpu_lease_page_init(void* page, uint64_t memory_limit_bytes) {
  rgpu::lease::InitPage(AsPage(page), memory_limit_bytes);
}
int rgpu_lease_page_valid(const void* page) { return rgpu::lease::IsPage(AsPage(page)) ? 1 : 0; }
int rgpu_lease_charge(void* page, uint32_t slot, uint64_t bytes) {
  return rgpu::lease::Charge(AsPage(page), slot, bytes) ? 1 : 0;
}
void rgpu_lease_release(void* page, uint32_t slot, uint64_t bytes) {
  rgpu::lease::Release(AsPage(page), slot, bytes);
}
uint64_t rgpu_lease_used(const void* page) { return rgpu::lease::UsedBytes(AsPage(page)); }
int rgpu_lease_claim_slot(void* page, uint64_t session) {
  return rgpu::lease::ClaimSlot(AsPage(page), session);
}
void rgpu_lease_clear_slot(void* page, uint32_t slot) {
  rgpu::lease::ClearSlot(AsPage(page), slot);
}
void rgpu_lease_set_limit(void* page, uint64_t memory_limit_bytes) {
  AsPage(page)->memory_limit_bytes = memory_limit_bytes;
}
uint64_t rgpu_lease_limit(const void* page) { return AsPage(page)->memory_limit_bytes; }
void rgpu_lease_set_shares(void* page, uint32_t request_ppm, uint32_t limit_ppm) {
  AsPage(page)->share_request_ppm = request_ppm;
  AsPage(page)->share_limit_ppm = limit_ppm;
}
void rgpu_lease_set_state(void* page, uint32_t state) { AsPage(page)->state = state; }

int rgpu_lease_read_slot(const void* page, uint32_t slot, uint64_t values[7]) {
  if (slot >= rgpu::lease::kSlots) return 0;
  const rgpu::lease::Slot& s = AsPage(page)->slots[slot];
  const std::atomic<uint64_t>* fields[] = {&s.session,    &s.used_bytes, &s.peak_bytes, &s.launches,
                                           &s.copy_bytes, &s.busy_ns,    &s.refused};
  for (size_t i = 0; i < std::size(fields); ++i) values[i] = fields[i]->load();
  return 1;
}

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
  }
  return -2;
}

int rgpu_wire_header(const uint8_t* header) {
  rgpu::wire::FrameHeader parsed;
  return rgpu::wire::ParseHeader(header, &parsed) ? 1 : 0;
}
