#include "rgpu_common/native/wire/preface.h"

#include "rgpu_common/native/wire/handshake.h"

namespace rgpu::wire {
namespace {

void PutText(Writer& w, const std::string& text) { w.Put(Bytes(text)); }

bool GetText(Reader& r, std::string* text, uint32_t limit) {
  ByteView bytes;
  r.Get(&bytes);
  if (!r.ok() || bytes.size > limit || !IsCleanText(bytes.text())) return false;
  text->assign(bytes.text());
  return true;
}

}  // namespace

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
