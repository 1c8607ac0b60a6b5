// Memory of cuMemCreate that processes of one lease share by a file descriptor. The descriptor is
// that of a small file with a token of the server, so it means nothing to anybody else, and works
// over every transport.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>

#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/mappable.h"
#include "rgpu_common/native/base/fd.h"

namespace rgpu::shim {
namespace {

constexpr char kMagic[] = {'R', 'G', 'P', 'U', 'M', 'E', 'M', '1'};
constexpr size_t kTokenBytes = CU_IPC_HANDLE_SIZE;
constexpr size_t kFileBytes = sizeof kMagic + kTokenBytes;
constexpr int kFinal = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

// -1: the process can open no more files.
int WriteToken(const std::string& token) {
  base::UniqueFd file(memfd_create("rgpu-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const std::string bytes = std::string(kMagic, sizeof kMagic) + token;
  const auto size = static_cast<ssize_t>(bytes.size());
  const bool good = file.valid() && write(file.get(), bytes.data(), bytes.size()) == size &&
                    fcntl(file.get(), F_ADD_SEALS, kFinal) == 0;
  return good ? file.release() : -1;
}

// Empty: it is not such a file. One that nobody can change has all its bytes at once.
std::string ReadToken(int file) {
  struct stat status{};
  char bytes[kFileBytes];
  if (fcntl(file, F_GET_SEALS) != kFinal || fstat(file, &status) != 0) return {};
  if (status.st_size != sizeof bytes || pread(file, bytes, sizeof bytes, 0) != sizeof bytes) {
    return {};
  }
  if (memcmp(bytes, kMagic, sizeof kMagic) != 0) return {};
  return {bytes + sizeof kMagic, kTokenBytes};
}

Memory* FindToken(const Here& here, const std::string& token) {
  Memory* found = nullptr;
  here.session->handles().ForEach([&](Object* object) {
    if (object->kind != Kind::kMemory) return;
    auto* memory = static_cast<Memory*>(object);
    if (memory->token == token) found = memory;
  });
  return found;
}

CUresult Export(const Here& here, Memory* memory) {
  rgpuIpcExportMappable_Reply reply;
  const CUresult status =
      here.channel().Call<op_rgpuIpcExportMappable>(AnyIssuer(here), {memory->id}, &reply);
  if (status != CUDA_SUCCESS) return status;
  if (reply.token.size != kTokenBytes) {
    here.channel().SetSticky(CUDA_ERROR_EXTERNAL_DEVICE, "the server sent a token of a wrong size");
    return CUDA_ERROR_EXTERNAL_DEVICE;
  }
  memory->token = reply.token.text();
  here.session->addresses().SetExportedOwner(memory->id);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType, unsigned long long) {
  const Here here = AnyHere(handle);
  const auto lock = LockMemory(here);
  Memory* memory = FindMemory(here, handle);
  const bool known = memory != nullptr && memory->shareable;
  if (!known || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      shareableHandle == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUresult status = memory->token.empty() ? Export(here, memory) : CUDA_SUCCESS;
  const int file = status == CUDA_SUCCESS ? WriteToken(memory->token) : -1;
  if (status == CUDA_SUCCESS && file < 0) status = CUDA_ERROR_OUT_OF_MEMORY;
  if (status == CUDA_SUCCESS) memcpy(shareableHandle, &file, sizeof file);
  return status;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                        CUmemAllocationHandleType shHandleType) {
  if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  const std::string token = ReadToken(static_cast<int>(reinterpret_cast<intptr_t>(osHandle)));
  if (token.empty()) return CUDA_ERROR_INVALID_VALUE;
  const Here here = AnyHere();
  const auto lock = LockMemory(here);
  if (Memory* known = FindToken(here, token); known != nullptr) {
    ++known->references;
    *handle = known->id;
    return CUDA_SUCCESS;
  }
  auto made = std::make_unique<Memory>();
  Memory* memory = made.get();
  memory->shareable = true;
  const auto& stack = here.thread->stack;
  memory->device = stack.empty() || stack.back() == nullptr ? 0 : stack.back()->device;
  const uint64_t id = here.session->handles().Add(std::move(made));
  if (id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  rgpuIpcImportMappable_Reply reply;
  const CUresult status = here.channel().Call<op_rgpuIpcImportMappable>(
      AnyIssuer(here), {id, wire::Bytes(token)}, &reply);
  if (status != CUDA_SUCCESS) {
    here.session->handles().Remove(id);
    return status;
  }
  memory->bytes = reply.bytes;
  memory->token = token;
  *handle = id;
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
