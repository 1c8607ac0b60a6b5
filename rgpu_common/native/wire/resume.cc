#include "rgpu_common/native/wire/resume.h"

#include <cstring>

namespace rgpu::wire {

void Put(Writer& w, const Resume& m) {
  w.Put(kMagic);
  w.Put(m.session);
  w.Put(Bytes(m.secret.data(), m.secret.size()));
  w.Put(static_cast<uint8_t>(m.lane));
  w.Put(m.link);
  w.Put(m.epoch);
  w.Put(m.received);
}

bool Get(Reader& r, Resume* m) {
  uint32_t magic = 0;
  uint8_t lane = 0;
  ByteView secret;
  r.Get(&magic);
  r.Get(&m->session);
  r.Get(&secret);
  r.Get(&lane);
  r.Get(&m->link);
  r.Get(&m->epoch);
  r.Get(&m->received);
  if (!r.done() || magic != kMagic || secret.size != m->secret.size()) return false;
  std::memcpy(m->secret.data(), secret.data, secret.size);
  m->lane = static_cast<LaneName>(lane);
  return lane < kLanes && m->link < kMaxLinks && m->epoch != 0;
}

void Put(Writer& w, const Resumed& m) { w.Put(m.received); }

bool Get(Reader& r, Resumed* m) {
  r.Get(&m->received);
  return r.done();
}

}  // namespace rgpu::wire
