// A worker's one session: what the daemon says of it (ASSIGN), and what is known besides.
#pragma once

#include "gen/worker.gen.h"
#include "rgpu_common/native/base/fd.h"

namespace rgpu::exec {

struct Assignment : wire::worker::Assign {
  bool whole_device = false;  // development mode: no lease; the limit is the whole device's memory
  base::UniqueFd signal;  // the lease's eventfd, for the token loop; invalid in development mode
};

}  // namespace rgpu::exec
