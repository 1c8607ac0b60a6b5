// Sending images, and making functions of what the server says about them.
#pragma once

#include <string>
#include <vector>

#include "rgpu_client/shim/calls/here.h"
#include "rgpu_client/shim/image.h"
#include "rgpu_client/shim/jit_options.h"

namespace rgpu::shim {

// Posts the pieces of an image under a new id, which the next load or link consumes.
CUresult PutImage(const Here& here, const Image& image, uint64_t* id);

// The image of a pointer or a file; `*file` keeps a file's bytes.
// CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_FILE_NOT_FOUND, CUDA_ERROR_INVALID_VALUE.
CUresult FindImage(const void* data, Image* image);
CUresult FindImageFile(const char* path, std::vector<uint8_t>* file, Image* image);

// A function or kernel that is being made: its handle exists before the server has answered.
struct NewFunction {
  Function* function = nullptr;
  uint64_t id = 0;
};
NewFunction AddFunction(Session& session, uint32_t context, bool is_kernel, uint64_t owner,
                        std::string_view name);
// Fills in what the reply says.  False: it makes no sense.
bool DescribeFunction(Function& function, wire::ByteView params, wire::ByteView attributes);

// Makes a module's variable known as device memory.
void AddGlobal(const Here& here, uint64_t owner, uint64_t address, uint64_t bytes);

}  // namespace rgpu::shim
