#include "rgpu_common/native/wire/refused.h"

#include "rgpu_common/native/wire/fields.h"
#include "rgpu_common/native/wire/text.h"

namespace rgpu::wire {

void Put(Writer& w, const Refused& m) { PutText(w, CleanText(m.sentence, kMaxSentenceBytes)); }

bool Get(Reader& r, Refused* m) { return GetText(r, &m->sentence, kMaxSentenceBytes) && r.done(); }

}  // namespace rgpu::wire
