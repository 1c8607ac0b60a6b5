#include "rgpu_client/shim/calls/entries.h"

#include <algorithm>

namespace rgpu::shim {
namespace {

// The names in a reply to rgpuFunctionNames.
std::vector<std::string> SplitNames(wire::ByteView names) {
  std::vector<std::string> list;
  std::string_view text = names.text();
  while (!text.empty()) {
    const size_t end = std::min(text.find('\0'), text.size());
    list.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return list;
}

}  // namespace

CUresult LearnNames(const Here& here, uint64_t module, uint64_t library, Entries& entries) {
  if (entries.names_known) return CUDA_SUCCESS;
  rgpuFunctionNames_Reply reply;
  const CUresult status =
      here.channel().Call<op_rgpuFunctionNames>(here.issuer(), {module, library}, &reply);
  if (status != CUDA_SUCCESS) return status;
  entries.names = SplitNames(reply.names);
  entries.names_known = true;
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
