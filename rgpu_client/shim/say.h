// Sentences for the user, on stderr: `rgpu: text`.
#pragma once

namespace rgpu::shim {

void Say(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace rgpu::shim
