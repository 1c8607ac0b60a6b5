// A hostile definition of a graph: what decodes is encoded to the same bytes.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "rgpu_common/native/wire/graph_definition.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  rgpu::wire::GraphDefinition definition;
  if (!rgpu::wire::Decode(rgpu::wire::Bytes(data, size), &definition)) return 0;
  std::vector<uint8_t> encoded;
  rgpu::wire::Encode(definition, &encoded);
  if (encoded.size() != size || std::memcmp(encoded.data(), data, size) != 0) std::abort();
  return 0;
}
