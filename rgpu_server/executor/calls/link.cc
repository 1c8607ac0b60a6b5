// Handlers: the linker.
#include <algorithm>

#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/loads.h"

namespace rgpu::exec {

namespace {

constexpr int kPeerTimeoutMs = 30'000;

wire::ByteView KeepLog(wire::ByteView log, int which) {
  thread_local std::string kept[2];
  kept[which].assign(log.text());
  return wire::Bytes(kept[which]);
}

// Marks a link while a thread works with it in the driver, without the executor's lock. The driver
// allows one thread at a time, and a link that is destroyed takes its memory with it.
class Busy {
 public:
  explicit Busy(Link& link) : link_(link) { link_.busy = true; }
  ~Busy() { link_.busy = false; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  Link& link_;
};

// Finds a link that no other thread works with.
CUresult FindLink(Executor& executor, uint64_t id, std::shared_ptr<Link>* link) {
  const CUresult result = executor.objects().links.Share(id, link);
  if (result != CUDA_SUCCESS) return result;
  return (*link)->busy ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

template <typename Reply>
void PutLogs(const Link& link, Reply* reply) {
  reply->info_log = KeepLog(link.options.info_log(), 0);
  reply->error_log = KeepLog(link.options.error_log(), 1);
}

}  // namespace

CUresult Run(Executor& executor, const Command& command, const rgpuLinkCreate_Request& request,
             rgpuLinkCreate_Reply*) {
  auto link = std::make_shared<Link>();
  CUresult result = executor.Enter(command, &link->context);
  if (result == CUDA_SUCCESS) result = executor.objects().links.CanAdd(request.link);
  if (result == CUDA_SUCCESS) {
    result = link->options.Read(request.options, request.info_log_bytes, request.error_log_bytes);
  }
  if (result != CUDA_SUCCESS) return result;
  result = executor.driver()->cuLinkCreate_v2(link->options.count(), link->options.ids(),
                                              link->options.values(), &link->state);
  if (result == CUDA_SUCCESS) executor.objects().links.Add(request.link, std::move(link));
  return result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuLinkAddData_Request& request,
             rgpuLinkAddData_Reply* reply) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  std::shared_ptr<Image> image;
  if (result == CUDA_SUCCESS) result = TakeImage(executor, request.image, &image);
  std::shared_ptr<Link> link;
  if (result == CUDA_SUCCESS) result = FindLink(executor, request.link, &link);
  JitOptions options;
  if (result == CUDA_SUCCESS) result = options.Read(request.options, 0, 0);
  if (result != CUDA_SUCCESS) return result == kDropped ? CUDA_ERROR_OUT_OF_MEMORY : result;
  std::string name;
  if (!ToName(request.name, &name)) return CUDA_ERROR_INVALID_VALUE;
  // PTX is passed with its terminating zero byte, as the driver requires.
  const auto type = static_cast<CUjitInputType>(request.type);
  const bool text = type == CU_JIT_INPUT_PTX;
  const bool closed = image->total > 0 && image->bytes[image->total - 1] == 0;
  const Driver& driver = executor.driver();
  executor.objects().image_bytes += image->total;
  link->held_bytes += image->total;
  const Busy busy(*link);
  const Compiling compiling(executor, {});
  result = executor.Unlocked([&] {
    executor.role().Yield();
    return driver->cuLinkAddData_v2(link->state, type, image->bytes.data(),
                                    image->total + (text && !closed ? 1 : 0), name.c_str(),
                                    options.count(), options.ids(), options.values());
  });
  PutLogs(*link, reply);
  return result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuLinkComplete_Request& request,
             rgpuLinkComplete_Reply* reply) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  std::shared_ptr<Link> link;
  if (result == CUDA_SUCCESS) result = FindLink(executor, request.link, &link);
  if (result != CUDA_SUCCESS) return result;
  void* linked = nullptr;
  size_t size = 0;
  const Driver& driver = executor.driver();
  {
    const Busy busy(*link);
    const Compiling compiling(executor, {});
    result = executor.Unlocked([&] {
      executor.role().Yield();
      return driver->cuLinkComplete(link->state, &linked, &size);
    });
  }
  PutLogs(*link, reply);
  if (result != CUDA_SUCCESS) return result;
  reply->size = size;
  executor.objects().image_bytes += size;
  link->held_bytes += size;
  if (size > request.limit) return CUDA_ERROR_OUT_OF_MEMORY;
  // The bytes belong to the driver until the link is destroyed, so they are copied.
  auto image = std::make_shared<std::vector<uint8_t>>(static_cast<uint8_t*>(linked),
                                                      static_cast<uint8_t*>(linked) + size);
  return executor.Unlocked([&] {
    for (uint64_t offset = 0; offset < size; offset += wire::kMaxBulkBytes) {
      wire::FrameHeader header = command.header;
      header.kind = wire::Kind::kData;
      header.flags = 0;
      header.watermark = executor.deliveries_sent();
      const auto bytes = std::min<uint64_t>(size - offset, wire::kMaxBulkBytes);
      if (!executor.outbox().WaitRoom(kPeerTimeoutMs) ||
          !executor.outbox().PostBulk(header, wire::Bytes(&offset, sizeof offset),
                                      wire::Bytes(image->data() + offset, bytes), image)) {
        return CUDA_ERROR_EXTERNAL_DEVICE;
      }
    }
    return CUDA_SUCCESS;
  });
}

CUresult Run(Executor& executor, const Command&, const rgpuLinkDestroy_Request& request,
             rgpuLinkDestroy_Reply*) {
  std::shared_ptr<Link> link;
  const CUresult result = FindLink(executor, request.link, &link);
  if (result != CUDA_SUCCESS && result != kDropped) return result;
  executor.objects().links.Take(request.link, &link);
  if (result != CUDA_SUCCESS) return result;
  executor.objects().image_bytes -= link->held_bytes;
  const CUresult current = executor.MakeCurrent(*link->context);
  return current == CUDA_SUCCESS ? executor.driver()->cuLinkDestroy(link->state) : current;
}

}  // namespace rgpu::exec
