// Archives of object files, as `ar` writes them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rgpu::emu {

// Returns the names of the members; empty for bytes that are not an archive.
std::vector<std::string> MembersOfArchive(std::span<const uint8_t> archive);

}  // namespace rgpu::emu
