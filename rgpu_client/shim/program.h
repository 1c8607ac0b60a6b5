// The name of this process in lists of sessions, such as `rgpu ps`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rgpu::shim {

// The program's name without its folder. An interpreter's script or module follows: `python
// train.py`, `python -m trainer`. The name shows no other word of the command line, because that
// may hold secrets.
std::string ProgramName(const std::vector<std::string_view>& words);
// ProgramName of this process, read from /proc/self/cmdline.
std::string OwnProgramName();

}  // namespace rgpu::shim
