// Hostile timing: delays and blocks wherever NVIDIA's driver may. When off, every function costs
// one branch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rgpu::emu {

void StartHostile(bool on, uint64_t seed);
bool Hostile();

// Sometimes sleeps for a while.
void HostilePause();

// Returns true for about one of `n` calls, but only in hostile timing.
bool HostileChance(uint32_t n);

// How many commands a stream holds before Push blocks.
size_t QueueLimit();

}  // namespace rgpu::emu
