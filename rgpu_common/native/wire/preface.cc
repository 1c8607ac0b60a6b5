#include "rgpu_common/native/wire/preface.h"

#include "rgpu_common/native/wire/fields.h"

namespace rgpu::wire {

void Put(Writer& w, const Preface& m) {
  w.Put(kMagic);
  PutText(w, m.transport);
  PutText(w, m.peer);
  PutText(w, m.tenant);
  w.Put(static_cast<uint8_t>(m.authenticated ? 1 : 0));
}

bool Get(Reader& r, Preface* m) {
  uint32_t magic = 0;
  uint8_t authenticated = 0;
  r.Get(&magic);
  if (magic != kMagic || !GetText(r, &m->transport, kMaxTransportBytes)) return false;
  if (!GetText(r, &m->peer, kMaxNameBytes) || !GetText(r, &m->tenant, kMaxNameBytes)) return false;
  r.Get(&authenticated);
  m->authenticated = authenticated == 1;
  return r.done() && !m->transport.empty() && authenticated <= 1 &&
         (m->tenant.empty() || m->authenticated);
}

}  // namespace rgpu::wire
