// The release, as HELLO and rgpu_shim_version tell it.
#pragma once

namespace rgpu::shim {

#ifndef RGPU_RELEASE
#define RGPU_RELEASE "0.0.0"
#endif
inline constexpr const char* kRelease = RGPU_RELEASE;

// What cuDriverGetVersion answers without a session, and the highest it ever answers.
inline constexpr int kDriverVersion = 13000;

}  // namespace rgpu::shim
