// The C functions of librgpu_native.so, called from Python by ctypes.  Pages are 4096 bytes of
// mapped shared memory; a slot is an index below rgpu_lease_slots().
#pragma once

#include <stddef.h>
#include <stdint.h>

#define RGPU_ABI __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

// --- the lease page (lease/page.h) ---
RGPU_ABI uint32_t rgpu_lease_page_bytes(void);
RGPU_ABI uint32_t rgpu_lease_slots(void);
RGPU_ABI void rgpu_lease_page_init(void* page, uint64_t memory_limit_bytes);
RGPU_ABI int rgpu_lease_page_valid(const void* page);
RGPU_ABI int rgpu_lease_charge(void* page, uint32_t slot, uint64_t bytes);  // 1 charged, 0 refused
RGPU_ABI void rgpu_lease_release(void* page, uint32_t slot, uint64_t bytes);
RGPU_ABI uint64_t rgpu_lease_used(const void* page);
RGPU_ABI int rgpu_lease_claim_slot(void* page, uint64_t session);  // -1: all taken
RGPU_ABI void rgpu_lease_clear_slot(void* page, uint32_t slot);
RGPU_ABI void rgpu_lease_set_limit(void* page, uint64_t memory_limit_bytes);
RGPU_ABI uint64_t rgpu_lease_limit(const void* page);
RGPU_ABI void rgpu_lease_set_shares(void* page, uint32_t request_ppm, uint32_t limit_ppm);
RGPU_ABI void rgpu_lease_set_state(void* page, uint32_t state);  // 1 active, 2 paused, 3 ended
// session, used_bytes, peak_bytes, launches, copy_bytes, busy_ns, refused.  0: no such slot.
RGPU_ABI int rgpu_lease_read_slot(const void* page, uint32_t slot, uint64_t values[7]);

// --- codec hooks for the tests of the wire ---
// Decodes the head of a command's request or reply and encodes what came out.  Returns the number
// of bytes written, -1: the decoder refused, -2: unknown opcode, -3: `capacity` is too small.
RGPU_ABI int64_t rgpu_wire_roundtrip(uint16_t opcode, int is_reply, const uint8_t* head,
                                     size_t bytes, uint8_t* out, size_t capacity);
// The same for a handshake message (opcode of the handshake table).
RGPU_ABI int64_t rgpu_wire_handshake(uint16_t opcode, const uint8_t* head, size_t bytes,
                                     uint8_t* out, size_t capacity);
// 1: ParseHeader accepts these 40 bytes.
RGPU_ABI int rgpu_wire_header(const uint8_t* header);

#ifdef __cplusplus
}
#endif
