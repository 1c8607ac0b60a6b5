// Sends images, and creates functions from the server's descriptions of them.
#pragma once

#include <string>
#include <vector>

#include "rgpu_client/shim/calls/here.h"
#include "rgpu_client/shim/image.h"
#include "rgpu_client/shim/jit_options.h"

namespace rgpu::shim {

// Posts the pieces of an image under a new id, which the next load or link consumes.
CUresult PutImage(const Here& here, const Image& image, uint64_t* id);

// Find the image at a pointer or in a file; `*file` keeps the file's bytes. They return
// CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_FILE_NOT_FOUND or CUDA_ERROR_INVALID_VALUE.
CUresult FindImage(const void* data, Image* image);
CUresult FindImageFile(const char* path, std::vector<uint8_t>* file, Image* image);

// Tells the user that `what` is too long, and what to do. Returns CUDA_ERROR_INVALID_IMAGE.
CUresult RefuseLongImage(const char* what);

// A function or kernel that is being created. Its handle exists before the server has answered.
struct NewFunction {
  Function* function = nullptr;
  uint64_t id = 0;
};
NewFunction AddFunction(Session& session, uint32_t context, bool is_kernel, uint64_t owner,
                        std::string_view name);
// Stores the parameters and attributes of a reply. False: the reply is malformed.
bool DescribeFunction(Function& function, wire::ByteView params, wire::ByteView attributes);

// Adds a module's variable to the address map.
void AddGlobal(const Here& here, uint64_t owner, uint64_t address, uint64_t bytes);

}  // namespace rgpu::shim
