#include "rgpu_client/shim/calls/images.h"

#include <errno.h>
#include <string.h>

#include <algorithm>

#include "rgpu_client/shim/say.h"
#include "rgpu_client/shim/trace.h"

namespace rgpu::shim {
namespace {

// Reserves an id that names an image on the wire. No object stays in the table.
struct ImageId : Object {
  ImageId() : Object(Kind::kLink) {}
};

}  // namespace

CUresult PutImage(const Here& here, const Image& image, uint64_t* id) {
  *id = here.session->handles().Add(std::make_unique<ImageId>());
  if (*id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  here.session->handles().Remove(*id);
  TraceBytes(image.bytes);
  for (uint64_t offset = 0; offset < image.bytes; offset += wire::kMaxBulkBytes) {
    PostOptions options;
    options.bulk = image.data + offset;
    options.bulk_bytes = std::min<uint64_t>(wire::kMaxBulkBytes, image.bytes - offset);
    options.more = offset + options.bulk_bytes < image.bytes;
    const CUresult status =
        here.channel().Post<op_rgpuImagePut>(here.issuer(), {*id, offset, image.bytes}, options);
    if (status != CUDA_SUCCESS) return status;
  }
  return CUDA_SUCCESS;
}

CUresult FindImage(const void* data, Image* image) {
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  bool too_long = false;
  const auto measured = MeasureImage(data, &too_long);
  if (too_long) return RefuseLongImage("code that this program loads (PTX, a fatbin or a cubin)");
  if (!measured) return CUDA_ERROR_INVALID_IMAGE;
  *image = *measured;
  return CUDA_SUCCESS;
}

CUresult RefuseLongImage(const char* what) {
  Say("%s is longer than %llu MiB, the most that one load or one input of a link may have, and is "
      "refused (CUDA_ERROR_INVALID_IMAGE); divide it into several modules, or leave out the code "
      "for other GPUs (nvcc -gencode, nvprune)",
      what, static_cast<unsigned long long>(kMaxImageBytes >> 20));
  return CUDA_ERROR_INVALID_IMAGE;
}

CUresult FindImageFile(const char* path, std::vector<uint8_t>* file, Image* image) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int error = ReadImageFile(path, file);
  if (error == EFBIG) return RefuseLongImage(path);
  if (error != 0) return CUDA_ERROR_FILE_NOT_FOUND;
  // The headers may state a length larger than the file.
  const auto measured = MeasureImage(file->data());
  if (!measured || measured->bytes > file->size() || measured->data != file->data()) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  *image = *measured;
  return CUDA_SUCCESS;
}

NewFunction AddFunction(Session& session, uint32_t context, bool is_kernel, uint64_t owner,
                        std::string_view name) {
  auto made = std::make_unique<Function>();
  made->context = context;
  made->is_kernel = is_kernel;
  made->owner = owner;
  made->name = name;
  NewFunction result;
  result.function = made.get();
  result.id = session.handles().Add(std::move(made));
  return result;
}

bool DescribeFunction(Function& function, wire::ByteView params, wire::ByteView attributes) {
  static_assert(sizeof(Param) == 8);
  if (params.size % sizeof(Param) != 0 || attributes.size % sizeof(int32_t) != 0) return false;
  function.params.resize(params.size / sizeof(Param));
  if (params.size > 0) memcpy(function.params.data(), params.data, params.size);
  uint64_t end = 0;
  for (const Param& param : function.params) {
    end = std::max(end, uint64_t{param.offset} + param.bytes);
  }
  if (end > wire::kMaxHeadBytes / 2) return false;
  function.param_bytes = static_cast<uint32_t>(end);
  function.param_block.assign(function.param_bytes, 0);
  function.has_layout = true;
  const size_t count = std::min<size_t>(attributes.size / sizeof(int32_t), Function::kAttributes);
  for (size_t i = 0; i < count; ++i) {
    int32_t value = 0;
    memcpy(&value, attributes.data + i * sizeof(value), sizeof(value));
    function.attributes[i] = value;
  }
  constexpr size_t kBlockAt = Function::kAttributes * sizeof(int32_t);
  constexpr size_t kBlockBytes = sizeof(function.required_block);
  if (attributes.size >= kBlockAt + kBlockBytes) {
    memcpy(function.required_block.data(), attributes.data + kBlockAt, kBlockBytes);
  }
  return true;
}

void AddGlobal(const Here& here, uint64_t owner, uint64_t address, uint64_t bytes) {
  Range range;
  range.base = address;
  range.bytes = bytes;
  range.kind = RangeKind::kGlobal;
  range.context = here.context_id();
  range.device = here.context->device;
  range.owner = owner;
  if (here.session->AcceptAddresses(address, bytes)) here.session->addresses().Add(range);
}

}  // namespace rgpu::shim
