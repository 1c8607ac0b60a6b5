#include "rgpu_server/executor/assignment.h"

#include <cstring>
#include <string_view>

namespace rgpu::exec {

bool ReadAssignment(wire::Reader& reader, Assignment* assignment) {
  wire::ByteView secret;
  wire::ByteView tenant;
  wire::ByteView environment;
  wire::ByteView hello;
  uint8_t compression = 0;
  reader.Get(&assignment->session);
  reader.Get(&secret);
  reader.Get(&assignment->slot);
  reader.Get(&assignment->memory_limit_bytes);
  reader.Get(&assignment->stream_credits);
  reader.Get(&assignment->stream_credit_bytes);
  reader.Get(&assignment->device);
  reader.Get(&tenant);
  reader.Get(&environment);
  reader.Get(&hello);
  reader.Get(&assignment->resume_grace_ms);
  reader.Get(&compression);
  if (!reader.done() || secret.size != wire::kSecretBytes) return false;
  assignment->compression = compression != 0;
  std::memcpy(assignment->secret.data(), secret.data, secret.size);
  assignment->tenant = std::string(tenant.text());
  std::string_view left = environment.text();
  while (!left.empty()) {
    const size_t end = left.find('\0');
    if (end == std::string_view::npos) return false;
    assignment->environment.emplace_back(left.substr(0, end));
    left.remove_prefix(end + 1);
  }
  assignment->hello.assign(hello.data, hello.data + hello.size);
  return true;
}

}  // namespace rgpu::exec
