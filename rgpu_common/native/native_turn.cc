// The right to compute of a Python worker.
#include <fcntl.h>

#include <system_error>

#include "rgpu_common/native/lease/turn.h"
#include "rgpu_common/native/native_worker_abi.h"

namespace {

using rgpu::lease::Turn;

Turn* AsTurn(void* turn) { return static_cast<Turn*>(turn); }

}  // namespace

void* rgpu_turn_open(void* page, uint32_t slot, int signal_fd, uint64_t (*finish)(void)) {
  if (slot >= rgpu::lease::kSlots) return nullptr;
  rgpu::base::UniqueFd signal(fcntl(signal_fd, F_DUPFD_CLOEXEC, 3));
  if (!signal.valid()) return nullptr;
  try {
    return new Turn(static_cast<rgpu::lease::Page*>(page), slot, std::move(signal), finish);
  } catch (const std::system_error&) {
    return nullptr;
  }
}

int64_t rgpu_turn_enter(void* turn, uint64_t left, uint64_t wait_ns) {
  return AsTurn(turn)->Enter(left, wait_ns);
}

void rgpu_turn_leave(void* turn, uint64_t left) { AsTurn(turn)->Leave(left); }

void rgpu_turn_end(void* turn) { AsTurn(turn)->End(); }

const void* rgpu_turn_ready(const void* turn) { return &static_cast<const Turn*>(turn)->ready(); }

const void* rgpu_turn_word(const void* page) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the low half comes first");
  return &static_cast<const rgpu::lease::Page*>(page)->token.word;
}

void rgpu_turn_close(void* turn) { delete AsTurn(turn); }
