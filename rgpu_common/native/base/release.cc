#include "rgpu_common/native/base/release.h"

namespace rgpu::base {

const char* Release() { return RGPU_RELEASE; }

}  // namespace rgpu::base
