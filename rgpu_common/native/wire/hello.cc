#include "rgpu_common/native/wire/hello.h"

#include <utility>

namespace rgpu::wire {
namespace {

constexpr size_t kOpcodeHashBytes = 6;

void PutOpcodeHash(Writer& w, const OpcodeHash& row) {
  w.Put(row.opcode);
  w.Put(row.layout_hash);
}

void ReadOpcodeHash(Reader& r, OpcodeHash* row) {
  r.Get(&row->opcode);
  r.Get(&row->layout_hash);
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
  PutBands(w, m.device_bands);
  PutBands(w, m.pinned_bands);
  PutRows(w, m.opcodes, kOpcodeHashBytes, PutOpcodeHash);
  if (m.minor >= kWishesMinor) PutWishes(w, m.wishes);
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
      !GetRows(r, &m->opcodes, kOpcodeHashBytes, kMaxOpcodes, ReadOpcodeHash)) {
    return false;
  }
  if (m->minor >= kWishesMinor && !GetWishes(r, &m->wishes)) return false;
  return r.done();
}

}  // namespace rgpu::wire
