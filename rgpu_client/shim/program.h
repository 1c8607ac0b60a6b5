// What this process is called where sessions are listed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rgpu::shim {

// The program's name without its folder and, of an interpreter, its script or module: `python
// train.py`, `python -m trainer`.  Nothing else of the command line is told: it may hold secrets.
std::string ProgramName(const std::vector<std::string_view>& words);
// The same of this process.
std::string OwnProgramName();

}  // namespace rgpu::shim
