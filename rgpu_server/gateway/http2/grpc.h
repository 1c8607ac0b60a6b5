// gRPC over HTTP/2: how calls begin and end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "rgpu_server/gateway/http2/session.h"

namespace rgpu::gateway::http2 {

enum class Code : uint8_t {
  kOk = 0,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kResourceExhausted = 8,
  kUnimplemented = 12,
  kUnavailable = 14,
};

struct Status {
  Code code = Code::kOk;
  std::string text;
};

// Returns the fields at the start of an answer.
const Fields& AnswerFields();
// Returns the fields at the end of an answer.
Fields Trailers(const Status& status);
// Returns the fields of an answer that has a status and no messages.
Fields OnlyTrailers(const Status& status);
// Checks that a request is a gRPC call. Returns no fields if it is, and else the fields of the HTTP
// answer.
Fields NoGrpc(const Fields& request);
// Returns the value of `grpc-timeout` in nanoseconds, UINT64_MAX if it has no valid value.
uint64_t TimeoutNs(std::string_view text);

}  // namespace rgpu::gateway::http2
