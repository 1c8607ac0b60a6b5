#include "rgpu_common/native/wire/handshake.h"

namespace rgpu::wire {
namespace {

void PutBand(Writer& w, const Band& band) {
  w.Put(band.base);
  w.Put(band.size);
}
void PutRow(Writer& w, const Band& band) { PutBand(w, band); }
void PutRow(Writer& w, const OpcodeHash& row) {
  w.Put(row.opcode);
  w.Put(row.layout_hash);
}
void PutRow(Writer& w, const std::pair<int32_t, int32_t>& row) {
  w.Put(row.first);
  w.Put(row.second);
}
void PutRow(Writer& w, const Wish& row) {
  w.Put(row.key);
  w.Put(row.value);
}
void PutRow(Writer& w, uint16_t row) { w.Put(row); }

void GetRow(Reader& r, Band* band) {
  r.Get(&band->base);
  r.Get(&band->size);
}
void GetRow(Reader& r, OpcodeHash* row) {
  r.Get(&row->opcode);
  r.Get(&row->layout_hash);
}
void GetRow(Reader& r, std::pair<int32_t, int32_t>* row) {
  r.Get(&row->first);
  r.Get(&row->second);
}
void GetRow(Reader& r, Wish* row) {
  r.Get(&row->key);
  r.Get(&row->value);
}
void GetRow(Reader& r, uint16_t* row) { r.Get(row); }

// Rows travel as one byte string; its length is a multiple of `row_bytes`.
template <typename T>
void PutRows(Writer& w, const std::vector<T>& rows, size_t row_bytes) {
  w.Put(static_cast<uint32_t>(rows.size() * row_bytes));
  for (const T& row : rows) PutRow(w, row);
}

template <typename T>
bool GetRows(Reader& r, std::vector<T>* rows, size_t row_bytes, uint32_t limit) {
  ByteView bytes;
  r.Get(&bytes);
  if (!r.ok() || bytes.size % row_bytes != 0 || bytes.size / row_bytes > limit) return false;
  rows->assign(bytes.size / row_bytes, T{});
  Reader inner(bytes.data, bytes.size);
  for (T& row : *rows) GetRow(inner, &row);
  return inner.done();
}

constexpr size_t kBandBytes = 16;
constexpr size_t kOpcodeHashBytes = 6;
constexpr size_t kAttributeBytes = 8;
constexpr size_t kOpcodeBytes = 2;
constexpr size_t kWishBytes = 10;

void PutText(Writer& w, std::string_view text) { w.Put(Bytes(text)); }

bool GetText(Reader& r, std::string* text, uint32_t limit) {
  ByteView bytes;
  r.Get(&bytes);
  if (!r.ok() || bytes.size > limit || !IsCleanText(bytes.text())) return false;
  *text = bytes.text();
  return true;
}

template <size_t kSize>
bool GetExactly(Reader& r, std::array<uint8_t, kSize>* to) {
  ByteView bytes;
  r.Get(&bytes);
  if (!r.ok() || bytes.size != kSize) return false;
  std::memcpy(to->data(), bytes.data, kSize);
  return true;
}

bool Valid(const Band& band) { return band.base + band.size >= band.base; }

bool GetBands(Reader& r, std::vector<Band>* bands) {
  if (!GetRows(r, bands, kBandBytes, kMaxBands)) return false;
  for (const Band& band : *bands) {
    if (!Valid(band)) return false;
  }
  return true;
}

bool GetBand(Reader& r, Band* band) {
  GetRow(r, band);
  return r.ok() && Valid(*band);
}

bool GetMagic(Reader& r) {
  uint32_t magic = 0;
  r.Get(&magic);
  return r.ok() && magic == kMagic;
}

void PutDevice(Writer& w, const DeviceInfo& m) {
  PutText(w, m.name);
  w.Put(Bytes(m.uuid.data(), m.uuid.size()));
  w.Put(m.total_bytes);
  PutText(w, m.pci_bus_id);
  PutRows(w, m.attributes, kAttributeBytes);
  w.Put(m.default_pool);
  w.Put(m.least_priority);
  w.Put(m.greatest_priority);
}

bool GetDevice(Reader& r, DeviceInfo* m) {
  if (!GetText(r, &m->name, kMaxNameBytes) || !GetExactly(r, &m->uuid)) return false;
  r.Get(&m->total_bytes);
  if (!GetText(r, &m->pci_bus_id, kMaxNameBytes)) return false;
  if (!GetRows(r, &m->attributes, kAttributeBytes, kMaxAttributes)) return false;
  r.Get(&m->default_pool);
  r.Get(&m->least_priority);
  r.Get(&m->greatest_priority);
  return r.ok();
}

}  // namespace

void Put(Writer& w, const Hello& m) {
  w.Put(kMagic);
  w.Put(m.major);
  w.Put(m.minor);
  for (const std::string* text :
       {&m.release, &m.token, &m.lease_key, &m.tenant, &m.container, &m.program}) {
    PutText(w, *text);
  }
  w.Put(m.pid);
  w.Put(m.device);
  w.Put(m.memory_bytes);
  w.Put(m.share_request_ppm);
  w.Put(m.share_limit_ppm);
  w.Put(m.resume_session);
  w.Put(m.resume_seq);
  PutRows(w, m.device_bands, kBandBytes);
  PutRows(w, m.pinned_bands, kBandBytes);
  PutRows(w, m.opcodes, kOpcodeHashBytes);
  if (m.minor >= kWishesMinor) PutRows(w, m.wishes, kWishBytes);
}

bool Get(Reader& r, Hello* m) {
  if (!GetMagic(r)) return false;
  r.Get(&m->major);
  r.Get(&m->minor);
  if (!r.ok() || m->major != kWireMajor) return r.ok();
  const std::pair<std::string*, uint32_t> texts[] = {
      {&m->release, kMaxNameBytes},   {&m->token, kMaxTokenBytes},
      {&m->lease_key, kMaxNameBytes}, {&m->tenant, kMaxNameBytes},
      {&m->container, kMaxNameBytes}, {&m->program, kMaxSentenceBytes}};
  for (const auto& [text, limit] : texts) {
    if (!GetText(r, text, limit)) return false;
  }
  r.Get(&m->pid);
  r.Get(&m->device);
  r.Get(&m->memory_bytes);
  r.Get(&m->share_request_ppm);
  r.Get(&m->share_limit_ppm);
  r.Get(&m->resume_session);
  r.Get(&m->resume_seq);
  if (!GetBands(r, &m->device_bands) || !GetBands(r, &m->pinned_bands) ||
      !GetRows(r, &m->opcodes, kOpcodeHashBytes, kMaxOpcodes)) {
    return false;
  }
  if (m->minor >= kWishesMinor && !GetRows(r, &m->wishes, kWishBytes, kMaxWishes)) return false;
  return r.done();
}

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
  PutRows(w, m.missing, kOpcodeBytes);
  w.Put(static_cast<uint32_t>(m.devices.size()));
  for (const DeviceInfo& device : m.devices) PutDevice(w, device);
  PutText(w, m.note);
  if (!m.grants.empty()) PutRows(w, m.grants, kWishBytes);
}

bool Get(Reader& r, Welcome* m) {
  r.Get(&m->session);
  if (!GetExactly(r, &m->secret) || !GetText(r, &m->release, kMaxNameBytes)) return false;
  if (!GetBand(r, &m->band) || !GetBand(r, &m->pinned)) return false;
  r.Get(&m->stream_credits);
  r.Get(&m->stream_credit_bytes);
  r.Get(&m->memory_limit_bytes);
  r.Get(&m->driver_version);
  if (!GetRows(r, &m->missing, kOpcodeBytes, kMaxOpcodes)) return false;
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
  // What is accepted has one form only: no grants are no bytes.
  return GetRows(r, &m->grants, kWishBytes, kMaxWishes) && !m->grants.empty() && r.done();
}

uint64_t Welcome::Granted(WishKey key) const {
  for (const Wish& grant : grants) {
    if (grant.key == static_cast<uint16_t>(key)) return grant.value;
  }
  return 0;
}

void Put(Writer& w, const Refused& m) { PutText(w, CleanText(m.sentence, kMaxSentenceBytes)); }

bool Get(Reader& r, Refused* m) { return GetText(r, &m->sentence, kMaxSentenceBytes) && r.done(); }

void Put(Writer& w, const Attach& m) {
  w.Put(kMagic);
  w.Put(m.session);
  w.Put(Bytes(m.secret.data(), m.secret.size()));
}

bool Get(Reader& r, Attach* m) {
  if (!GetMagic(r)) return false;
  r.Get(&m->session);
  return GetExactly(r, &m->secret) && r.done();
}

void Put(Writer& w, const Shm& m) {
  w.Put(m.accepted);
  PutText(w, CleanText(m.reason, kMaxSentenceBytes));
}

bool Get(Reader& r, Shm* m) {
  r.Get(&m->accepted);
  return m->accepted <= 1 && GetText(r, &m->reason, kMaxSentenceBytes) && r.done();
}

bool SameSecret(const std::array<uint8_t, kSecretBytes>& a,
                const std::array<uint8_t, kSecretBytes>& b) {
  unsigned different = 0;
  for (size_t i = 0; i < kSecretBytes; ++i) different |= static_cast<unsigned>(a[i] ^ b[i]);
  return different == 0;
}

}  // namespace rgpu::wire
