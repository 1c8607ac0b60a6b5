// The flags of cuGetProcAddress.
#pragma once

#include "gen/cuda_abi.gen.h"

namespace rgpu::base {

inline bool AreProcFlags(cuuint64_t flags) {
  return (flags & ~cuuint64_t{CU_GET_PROC_ADDRESS_LEGACY_STREAM |
                              CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM}) == 0;
}

}  // namespace rgpu::base
