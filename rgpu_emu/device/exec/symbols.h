// The only functions outside its own object that compiled code may call.
#pragma once

#include <cstdint>
#include <string_view>

namespace rgpu::emu {

// Address of an allowed runtime function; 0 when the name is not allowed.
uint64_t RuntimeSymbol(std::string_view name);

}  // namespace rgpu::emu
