// The functions of a module, the kernels of a library, and the globals of both, by name.
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

// Finds a global of a module or library. Asks the worker for it, unless the owner already has it
// under `key`. With the owner's mutex.
template <typename Op, typename Owner, typename Key>
CUresult FindGlobal(const Here& here, Owner& owner, const Key& key, const char* name,
                    Global* global) {
  const auto known = owner.globals.find(key);
  if (known != owner.globals.end()) {
    *global = known->second;
    return CUDA_SUCCESS;
  }
  typename Op::Reply reply;
  const CUresult status = here.channel().Call<Op>(
      here.issuer(), {owner.id, wire::Bytes(std::string_view(name))}, &reply);
  if (status != CUDA_SUCCESS) return status;
  *global = {reply.dptr, reply.size};
  owner.globals.emplace(key, *global);
  AddGlobal(here, owner.id, global->address, global->bytes);
  return CUDA_SUCCESS;
}

// Gives a program what cuModuleGetGlobal and cuLibraryGetGlobal ask for; either may be null.
inline void WriteGlobal(const Global& global, CUdeviceptr* dptr, size_t* bytes) {
  if (dptr != nullptr) *dptr = global.address;
  if (bytes != nullptr) *bytes = global.bytes;
}

}  // namespace rgpu::shim
