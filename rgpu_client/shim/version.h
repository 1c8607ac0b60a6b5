// The version of the driver that programs see.
#pragma once

namespace rgpu::shim {

// The answer of cuDriverGetVersion without a session, and the highest answer it ever gives.
inline constexpr int kDriverVersion = 13000;

}  // namespace rgpu::shim
