#include "rgpu_client/shim/calls/twins.h"

#include "rgpu_client/shim/calls/entries.h"

namespace rgpu::shim {
namespace {

struct Kept {
  std::vector<uint8_t> image;
  std::vector<uint8_t> options;
  std::map<unsigned, uint64_t> twins;  // handles, by the number of the session
};

struct Twins {
  std::mutex mutex;
  std::map<uint64_t, Kept> kept;  // by the handle of the library that the program has
};

// A pointer, because a forked child needs a new mutex.
Twins* g_twins = new Twins;

CUresult LoadTwin(const Here& here, const Kept& kept, uint64_t* id) {
  uint64_t image = 0;
  CUresult status = PutImage(here, {kept.image.data(), kept.image.size()}, &image);
  if (status != CUDA_SUCCESS) return status;
  *id = here.session->handles().Add(std::make_unique<Library>());
  if (*id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  rgpuLibraryLoad_Reply reply;
  const wire::ByteView options = wire::Bytes(kept.options.data(), kept.options.size());
  const JitOptions none;
  status = here.channel().Call<op_rgpuLibraryLoad>(
      here.issuer(), {*id, image, options, 0, none.error_bytes()}, &reply);
  if (status == CUDA_SUCCESS) return status;
  none.SayWhy(reply.error_log);
  here.session->handles().Remove(*id);
  return status;
}

}  // namespace

void KeepForTwins(const Library& library, const Image& image, const JitOptions& options) {
  if (LiveSessions().size() < 2) return;
  const wire::ByteView encoded = options.encoded();
  const std::lock_guard lock(g_twins->mutex);
  Kept& kept = g_twins->kept[library.id];
  kept.image.assign(image.data, image.data + image.bytes);
  kept.options.assign(encoded.data, encoded.data + encoded.size);
}

CUresult LibraryIn(const Here& here, Library& library, Library** in) {
  *in = &library;
  if (SessionOf(library.id) == here.session) return CUDA_SUCCESS;
  const std::lock_guard lock(g_twins->mutex);
  const auto kept = g_twins->kept.find(library.id);
  if (kept == g_twins->kept.end()) return CUDA_ERROR_INVALID_HANDLE;
  auto twin = kept->second.twins.find(here.session->number());
  if (twin == kept->second.twins.end()) {
    uint64_t id = 0;
    const CUresult status = LoadTwin(here, kept->second, &id);
    if (status != CUDA_SUCCESS) return status;
    twin = kept->second.twins.emplace(here.session->number(), id).first;
  }
  *in = here.session->handles().Find<Library>(twin->second);
  return *in == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult KernelIn(const Here& here, Function& kernel, Function** in) {
  *in = &kernel;
  if (SessionOf(kernel.id) == here.session) return CUDA_SUCCESS;
  Library* home = SessionOf(kernel.owner)->handles().Find<Library>(kernel.owner);
  if (home == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Library* twin = nullptr;
  CUresult status = LibraryIn(here, *home, &twin);
  if (status != CUDA_SUCCESS) return status;
  uint64_t id = 0;
  const std::lock_guard lock(twin->mutex);
  status = FindEntry<op_rgpuLibraryGetKernel>(here, {twin->id, 0, true}, twin->kernels, kernel.name,
                                              &id);
  if (status != CUDA_SUCCESS) return status;
  *in = here.session->handles().Find<Function>(id);
  return *in == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

std::vector<uint64_t> DropTwins(uint64_t library) {
  std::vector<uint64_t> handles;
  const std::lock_guard lock(g_twins->mutex);
  const auto kept = g_twins->kept.find(library);
  if (kept == g_twins->kept.end()) return handles;
  for (const auto& [session, twin] : kept->second.twins) handles.push_back(twin);
  g_twins->kept.erase(kept);
  return handles;
}

void ForgetTwins() { g_twins = new Twins; }

}  // namespace rgpu::shim
