// The only functions outside its own object file that compiled code may call.
#pragma once

#include <cstdint>
#include <string_view>

namespace rgpu::emu {

// Returns the address of an allowed runtime function; 0 if the name is not allowed.
uint64_t RuntimeSymbol(std::string_view name);

}  // namespace rgpu::emu
