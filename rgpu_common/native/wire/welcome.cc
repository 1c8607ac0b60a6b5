#include "rgpu_common/native/wire/welcome.h"

namespace rgpu::wire {
namespace {

using Attribute = std::pair<int32_t, int32_t>;

constexpr size_t kAttributeBytes = 8;
constexpr size_t kOpcodeBytes = 2;

void PutAttribute(Writer& w, const Attribute& row) {
  w.Put(row.first);
  w.Put(row.second);
}

void ReadAttribute(Reader& r, Attribute* row) {
  r.Get(&row->first);
  r.Get(&row->second);
}

void PutOpcode(Writer& w, uint16_t row) { w.Put(row); }

void ReadOpcode(Reader& r, uint16_t* row) { r.Get(row); }

void PutDevice(Writer& w, const DeviceInfo& m) {
  PutText(w, m.name);
  w.Put(Bytes(m.uuid.data(), m.uuid.size()));
  w.Put(m.total_bytes);
  PutText(w, m.pci_bus_id);
  PutRows(w, m.attributes, kAttributeBytes, PutAttribute);
  w.Put(m.default_pool);
  w.Put(m.least_priority);
  w.Put(m.greatest_priority);
}

bool GetDevice(Reader& r, DeviceInfo* m) {
  if (!GetText(r, &m->name, kMaxNameBytes) || !GetExactly(r, &m->uuid)) return false;
  r.Get(&m->total_bytes);
  if (!GetText(r, &m->pci_bus_id, kMaxNameBytes)) return false;
  if (!GetRows(r, &m->attributes, kAttributeBytes, kMaxAttributes, ReadAttribute)) return false;
  r.Get(&m->default_pool);
  r.Get(&m->least_priority);
  r.Get(&m->greatest_priority);
  return r.ok();
}

}  // namespace

void Put(Writer& w, const Welcome& m) {
  w.Put(m.session);
  w.Put(Bytes(m.secret.data(), m.secret.size()));
  PutText(w, m.release);
  PutBand(w, m.band);
  PutBand(w, m.pinned);
  w.Put(m.stream_credits);
  w.Put(m.stream_credit_bytes);
  w.Put(m.memory_limit_bytes);
  w.Put(m.driver_version);
  PutRows(w, m.missing, kOpcodeBytes, PutOpcode);
  w.Put(static_cast<uint32_t>(m.devices.size()));
  for (const DeviceInfo& device : m.devices) PutDevice(w, device);
  PutText(w, m.note);
  if (!m.grants.empty()) PutWishes(w, m.grants);
}

bool Get(Reader& r, Welcome* m) {
  r.Get(&m->session);
  if (!GetExactly(r, &m->secret) || !GetText(r, &m->release, kMaxNameBytes)) return false;
  if (!GetBand(r, &m->band) || !GetBand(r, &m->pinned)) return false;
  r.Get(&m->stream_credits);
  r.Get(&m->stream_credit_bytes);
  r.Get(&m->memory_limit_bytes);
  r.Get(&m->driver_version);
  if (!GetRows(r, &m->missing, kOpcodeBytes, kMaxOpcodes, ReadOpcode)) return false;
  uint32_t count = 0;
  r.Get(&count);
  if (!r.ok() || count > kMaxDevices) return false;
  m->devices.assign(count, DeviceInfo{});
  for (DeviceInfo& device : m->devices) {
    if (!GetDevice(r, &device)) return false;
  }
  if (!GetText(r, &m->note, kMaxSentenceBytes)) return false;
  m->grants.clear();
  if (r.done()) return true;
  // An empty list of grants must have no bytes, so that every accepted message has one form only.
  return GetWishes(r, &m->grants) && !m->grants.empty() && r.done();
}

uint64_t Welcome::Granted(WishKey key) const {
  for (const Wish& grant : grants) {
    if (grant.key == static_cast<uint16_t>(key)) return grant.value;
  }
  return 0;
}

}  // namespace rgpu::wire
