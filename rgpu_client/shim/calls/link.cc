// The linker. The options of cuLinkCreate name log buffers of the program, which later calls of the
// same link still write.
#include <errno.h>

#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/images.h"
#include "rgpu_common/native/base/clock.h"

namespace rgpu::shim {
namespace {

// Collects the linked image from DATA frames.
class ImageSink final : public ReplySink {
 public:
  explicit ImageSink(std::vector<uint8_t>* image) : image_(image) {}

  bool OnData(uint64_t offset, uint32_t bytes, transport::FrameReader& reader) override {
    if (offset != image_->size() || bytes > kMaxImageBytes - offset) return false;
    image_->resize(offset + bytes);
    return bytes == 0 ||
           reader.ReadBulk(image_->data() + offset, bytes, -1) == transport::BulkState::kDone;
  }

 private:
  std::vector<uint8_t>* const image_;
};

Link* FindLink(CUlinkState state) {
  return SessionOf(HandleValue(state))->handles().Find<Link>(HandleValue(state));
}

// A link belongs to the context in which it was created, whichever context is current now.
Here LinkHere(const Link& link) {
  Here here = AnyHere(link.id);
  here.context = here.session->handles().Find<Context>(link.context);
  return here;
}

CUresult AddImage(Link& link, CUjitInputType type, const Image& image, const char* name,
                  const JitOptions& options) {
  const Here here = LinkHere(link);
  if (here.context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  uint64_t image_id = 0;
  if (const CUresult status = PutImage(here, image, &image_id); status != CUDA_SUCCESS) {
    return status;
  }
  rgpuLinkAddData_Reply reply;
  const uint64_t start = base::NowNs();
  const CUresult status = here.channel().Call<op_rgpuLinkAddData>(
      here.issuer(),
      {link.id, static_cast<int32_t>(type), image_id,
       wire::Bytes(std::string_view(name == nullptr ? "" : name)), options.encoded()},
      &reply);
  link.options.WriteBack(reply.info_log, reply.error_log, base::NowNs() - start);
  return status;
}

bool IsInputType(CUjitInputType type) { return type >= 0 && type < CU_JIT_NUM_INPUT_TYPES; }

}  // namespace

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues,
                         CUlinkState* stateOut) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  auto made = std::make_unique<Link>();
  made->context = here.context_id();
  if (const CUresult status = made->options.Read(numOptions, options, optionValues);
      status != CUDA_SUCCESS) {
    return status;
  }
  const Link* link = made.get();
  const uint64_t id = here.session->handles().Add(std::move(made));
  if (id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  rgpuLinkCreate_Reply reply;
  const CUresult status = here.channel().Call<op_rgpuLinkCreate>(
      here.issuer(),
      {id, link->options.encoded(), link->options.info_bytes(), link->options.error_bytes()},
      &reply);
  if (status != CUDA_SUCCESS) {
    here.session->handles().Remove(id);
    return status;
  }
  *stateOut = MakeHandle<CUlinkState>(id);
  return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size,
                          const char* name, unsigned int numOptions, CUjit_option* options,
                          void** optionValues) {
  Link* link = FindLink(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  JitOptions jit;
  if (data == nullptr || size == 0 || !IsInputType(type)) return CUDA_ERROR_INVALID_VALUE;
  if (size > kMaxImageBytes) return RefuseLongImage(name == nullptr ? "an input of a link" : name);
  const CUresult status = jit.Read(numOptions, options, optionValues);
  if (status != CUDA_SUCCESS) return status;
  return AddImage(*link, type, {static_cast<const uint8_t*>(data), size}, name, jit);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path,
                          unsigned int numOptions, CUjit_option* options, void** optionValues) {
  Link* link = FindLink(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (path == nullptr || !IsInputType(type)) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  CUresult status = jit.Read(numOptions, options, optionValues);
  if (status != CUDA_SUCCESS) return status;
  std::vector<uint8_t> file;
  const int error = ReadImageFile(path, &file);
  if (error == EFBIG) return RefuseLongImage(path);
  if (error != 0) return CUDA_ERROR_FILE_NOT_FOUND;
  // ReadImageFile has appended a zero, which is part of PTX text only.
  const uint64_t bytes = type == CU_JIT_INPUT_PTX ? file.size() : file.size() - 1;
  return AddImage(*link, type, {file.data(), bytes}, path, jit);
}

CUresult cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  Link* link = FindLink(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (cubinOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Here here = LinkHere(*link);
  if (here.context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  std::vector<uint8_t> image;
  ImageSink sink(&image);
  rgpuLinkComplete_Reply reply;
  const uint64_t start = base::NowNs();
  const CUresult status = here.channel().Call<op_rgpuLinkComplete>(
      here.issuer(), {link->id, kMaxImageBytes}, &reply, &sink);
  link->options.WriteBack(reply.info_log, reply.error_log, base::NowNs() - start);
  if (status != CUDA_SUCCESS) return status;
  if (reply.size != image.size() || image.empty()) return CUDA_ERROR_UNKNOWN;
  link->image = std::move(image);  // owned until cuLinkDestroy
  *cubinOut = link->image.data();
  if (sizeOut != nullptr) *sizeOut = link->image.size();
  return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state) {
  Link* link = FindLink(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Here here = LinkHere(*link);
  const uint64_t id = link->id;
  // A program must not use the image from here on. If it does by mistake, the image still exists
  // for a while in the handle table.
  here.session->handles().Remove(id);
  if (here.context == nullptr) return CUDA_SUCCESS;
  return here.channel().Post<op_rgpuLinkDestroy>(here.issuer(), {id});
}

}  // namespace rgpu::shim
