#include "rgpu_common/native/wire/shm.h"

#include "rgpu_common/native/wire/fields.h"
#include "rgpu_common/native/wire/text.h"

namespace rgpu::wire {

void Put(Writer& w, const Shm& m) {
  w.Put(m.accepted);
  PutText(w, CleanText(m.reason, kMaxSentenceBytes));
}

bool Get(Reader& r, Shm* m) {
  r.Get(&m->accepted);
  return m->accepted <= 1 && GetText(r, &m->reason, kMaxSentenceBytes) && r.done();
}

}  // namespace rgpu::wire
