// The text that a peer may send before it is authenticated: UTF-8 without control characters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rgpu::wire {

// Makes text fit for the handshake: cuts it to `max_bytes`, and replaces control characters and
// malformed UTF-8 by '?'.
std::string CleanText(std::string_view text, uint32_t max_bytes);
// True if `text` is UTF-8 without control characters.
bool IsCleanText(std::string_view text);

}  // namespace rgpu::wire
