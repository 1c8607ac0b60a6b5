// The functions of a module and the kernels of a library, by name.
#pragma once

#include <string_view>

#include "rgpu_client/shim/calls/images.h"

namespace rgpu::shim {

// Asks the worker for all names, once for each owner. With the owner's mutex. One of `module` and
// `library` is 0.
CUresult LearnNames(const Here& here, uint64_t module, uint64_t library, Entries& entries);

struct EntryOwner {
  uint64_t id = 0;
  uint32_t context = 0;  // 0: belongs to no context
  bool is_kernel = false;
};

// Finds the handle of an entry. The first request for a name creates it. With the owner's mutex.
template <typename Op>
CUresult FindEntry(const Here& here, const EntryOwner& owner, Entries& entries,
                   std::string_view name, uint64_t* id) {
  const auto known = entries.ids.find(name);
  if (known != entries.ids.end()) {
    *id = known->second;
    return CUDA_SUCCESS;
  }
  const NewFunction made =
      AddFunction(*here.session, owner.context, owner.is_kernel, owner.id, name);
  if (made.id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  typename Op::Reply reply;
  CUresult status =
      here.channel().Call<Op>(here.issuer(), {owner.id, wire::Bytes(name), made.id}, &reply);
  if (status == CUDA_SUCCESS && !DescribeFunction(*made.function, reply.params, reply.attributes)) {
    status = CUDA_ERROR_UNKNOWN;
  }
  if (status != CUDA_SUCCESS) {
    here.session->handles().Remove(made.id);
    return status;
  }
  entries.ids.emplace(name, made.id);
  *id = made.id;
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
