#include "rgpu_common/native/wire/attach.h"

#include "rgpu_common/native/wire/fields.h"

namespace rgpu::wire {

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

}  // namespace rgpu::wire
