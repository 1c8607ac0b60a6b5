#include "rgpu_client/shim/calls/twins.h"

#include <array>

#include "rgpu_client/shim/calls/entries.h"

namespace rgpu::shim {
namespace {

// A thread holds the mutex while it loads the library, so each session has one.
struct Twin {
  std::mutex mutex;
  uint64_t handle = 0;  // 0: not loaded yet
};

struct Kept {
  std::vector<uint8_t> image;
  std::vector<uint8_t> options;
  std::array<Twin, kMostSessions> twins;  // by the number of the session
};

struct Twins {
  std::mutex mutex;
  // By the handle of the library that the program has.
  std::map<uint64_t, std::shared_ptr<Kept>> kept;

  std::shared_ptr<Kept> Find(uint64_t library) {
    const std::lock_guard lock(mutex);
    const auto found = kept.find(library);
    return found == kept.end() ? nullptr : found->second;
  }
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
  auto kept = std::make_shared<Kept>();
  kept->image.assign(image.data, image.data + image.bytes);
  kept->options.assign(encoded.data, encoded.data + encoded.size);
  const std::lock_guard lock(g_twins->mutex);
  g_twins->kept[library.id] = std::move(kept);
}

CUresult LibraryIn(const Here& here, Library& library, Library** in) {
  *in = &library;
  if (SessionOf(library.id) == here.session) return CUDA_SUCCESS;
  const std::shared_ptr<Kept> kept = g_twins->Find(library.id);
  if (kept == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Twin& twin = kept->twins[here.session->number()];
  const std::lock_guard lock(twin.mutex);
  if (twin.handle == 0) {
    const CUresult status = LoadTwin(here, *kept, &twin.handle);
    if (status != CUDA_SUCCESS) {
      twin.handle = 0;
      return status;
    }
  }
  *in = here.session->handles().Find<Library>(twin.handle);
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
  const std::shared_ptr<Kept> kept = g_twins->Find(library);
  if (kept == nullptr) return {};
  {
    const std::lock_guard lock(g_twins->mutex);
    g_twins->kept.erase(library);
  }
  std::vector<uint64_t> handles;
  for (Twin& twin : kept->twins) {
    const std::lock_guard lock(twin.mutex);
    if (twin.handle != 0) handles.push_back(twin.handle);
  }
  return handles;
}

void ForgetTwins() { g_twins = new Twins; }

}  // namespace rgpu::shim
