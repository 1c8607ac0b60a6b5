// The text of a peer: UTF-8 without characters that control a terminal, or that hide or reorder
// what is beside them. Python's side of the rule is `unclean` in rgpu_common/wire/scalars.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rgpu::wire {

// Makes text fit for the handshake: cuts it to `max_bytes`, and replaces by '?' each character that
// is not clean and each byte of malformed UTF-8.
std::string CleanText(std::string_view text, uint32_t max_bytes);
// True if `text` is UTF-8 of clean characters.
bool IsCleanText(std::string_view text);
// Does to sentences for a terminal what CleanText does, but leaves line breaks and tabs. Works in
// place, without memory of its own, because a sentence may say that there is none. Returns how many
// bytes are left.
size_t CleanSentences(char* text, size_t bytes);

}  // namespace rgpu::wire
