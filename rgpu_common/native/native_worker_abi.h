// The C functions of librgpu_native.so for a worker that is a Python process (rgpu_server/arrays).
// Pages and slots as in native_abi.h.
#pragma once

#include "rgpu_common/native/native_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

// --- the right to compute (lease/turn.h, rgpu_server/arrays/turns.py) ---
// Duplicates `signal_fd`, the lease's eventfd. `finish` may be null: operations are complete when
// they return. Null: the slot does not exist, or the machine has no thread left.
RGPU_ABI void* rgpu_turn_open(void* page, uint32_t slot, int signal_fd, uint64_t (*finish)(void));
// The number of operations that may begin. 0: the time passed. -1: rgpu_turn_end was called.
RGPU_ABI int64_t rgpu_turn_enter(void* turn, uint64_t left, uint64_t wait_ns);
RGPU_ABI void rgpu_turn_leave(void* turn, uint64_t left);
RGPU_ABI void rgpu_turn_end(void* turn);
// Two 32-bit words that are equal while the operations that rgpu_turn_enter allowed may begin.
RGPU_ABI const void* rgpu_turn_ready(const void* turn);
RGPU_ABI const void* rgpu_turn_word(const void* page);
RGPU_ABI void rgpu_turn_close(void* turn);

// --- the memory of arrays (lease/array_pool.h, rgpu_server/arrays/memory.py) ---
// Functions of a device library, which return 0 if they succeed, and the context in which they are
// called. All null: memory of the process. `charge`, which may be null, charges the lease where
// that may have to wait: 1 charged, 0 refused. It may call the other functions here.
typedef struct {
  int (*allocate)(uint64_t* address, size_t bytes);
  int (*release)(uint64_t address);
  int (*make_current)(void* context);
  void* context;
  int (*charge)(uint64_t bytes);
} rgpu_pool_driver;
// Null: the slot does not exist, or the machine has no thread left.
RGPU_ABI void* rgpu_pool_open(void* page, uint32_t slot, const rgpu_pool_driver* driver);
// 0: blocks are in use, and the pool stays.
RGPU_ABI int rgpu_pool_close(void* pool);
RGPU_ABI uint64_t rgpu_pool_charged(uint64_t bytes);            // for a block of so many bytes
RGPU_ABI void* rgpu_pool_allocate(void* pool, uint64_t bytes);  // null: refused
RGPU_ABI void rgpu_pool_free(void* pool, void* block);
RGPU_ABI void rgpu_pool_trim(void* pool);
// Finds the block in use that holds an address: its first address and its bytes. 0: none does.
RGPU_ABI int rgpu_pool_find(void* pool, uint64_t address, uint64_t* base, uint64_t* bytes);
// Bytes in use, bytes charged, blocks in use.
RGPU_ABI void rgpu_pool_figures(void* pool, uint64_t values[3]);
// NumPy's PyDataMemAllocator, with the pool as its context.
RGPU_ABI void* rgpu_pool_numpy_malloc(void* pool, size_t bytes);
RGPU_ABI void* rgpu_pool_numpy_calloc(void* pool, size_t count, size_t each);
RGPU_ABI void* rgpu_pool_numpy_realloc(void* pool, void* block, size_t bytes);
RGPU_ABI void rgpu_pool_numpy_free(void* pool, void* block, size_t bytes);

// --- the sandbox of a worker (confine/sandbox.h, rgpu_server/arrays/confine.py) ---
// Restricts this thread, and the threads that it starts later. `readable`: folders that stay
// readable; null ends the list. `report` gets the restrictions that the machine refused, as READY
// says them. Returns how many threads the process has: those that ran before are not restricted.
RGPU_ABI uint32_t rgpu_confine_worker(int needs_driver_files, const char* const* readable,
                                      char* report, size_t report_bytes);

#ifdef __cplusplus
}
#endif
