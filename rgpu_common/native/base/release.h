// The release that HELLO, WELCOME and rgpu_shim_version report.
#pragma once

namespace rgpu::base {

// It changes with each commit, so it is compiled into one file only.
const char* Release();

}  // namespace rgpu::base
