// Hostile timing: delays and blocks wherever NVIDIA's driver may.  Off, every function is a branch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rgpu::emu {

void StartHostile(bool on, uint64_t seed);
bool Hostile();

// Sleeps for a while, sometimes.
void HostilePause();

// True in about one of `n` calls, in hostile timing only.
bool HostileChance(uint32_t n);

// Commands that a stream holds before the caller blocks.
size_t QueueLimit();

}  // namespace rgpu::emu
