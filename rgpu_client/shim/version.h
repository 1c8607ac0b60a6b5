// The release that HELLO and rgpu_shim_version report.
#pragma once

namespace rgpu::shim {

#ifndef RGPU_RELEASE
#define RGPU_RELEASE "0.0.0"
#endif
inline constexpr const char* kRelease = RGPU_RELEASE;

// The answer of cuDriverGetVersion without a session, and the highest answer it ever gives.
inline constexpr int kDriverVersion = 13000;

}  // namespace rgpu::shim
