// The C functions of librgpu_native.so, called from Python by ctypes.  Pages are
// rgpu_lease_page_bytes() of mapped shared memory; a slot is an index below rgpu_lease_slots().
#pragma once

#include <stddef.h>
#include <stdint.h>

#define RGPU_ABI __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

// --- the lease page (lease/page.h) ---
RGPU_ABI uint32_t rgpu_lease_page_bytes(void);
// The size of the page's first part, the file with the grants. The rest is the file with the usage.
RGPU_ABI uint32_t rgpu_lease_grant_bytes(void);
// Null: the page cannot be mapped; errno says why.
RGPU_ABI void* rgpu_lease_map(int grants_fd, int usage_fd, int write_grants);
RGPU_ABI void rgpu_lease_unmap(void* page);
RGPU_ABI uint32_t rgpu_lease_slots(void);
RGPU_ABI void rgpu_lease_page_init(void* page, uint64_t memory_limit_bytes);
RGPU_ABI int rgpu_lease_page_valid(const void* page);
RGPU_ABI int rgpu_lease_charge(void* page, uint32_t slot, uint64_t bytes);  // 1 charged, 0 refused
// The same, but waits for memory that other sessions of the lease are giving back, and raises no
// peak: rgpu_lease_raise_peak does, once the device has given the memory.
RGPU_ABI int rgpu_lease_charge_before(void* page, uint32_t slot, uint64_t bytes);
RGPU_ABI void rgpu_lease_raise_peak(void* page, uint32_t slot);
// Waits likewise until the sessions of the lease may allocate so much. 1: they may. 0: they may
// not.
RGPU_ABI int rgpu_lease_await_room(void* page, uint32_t slot, uint64_t bytes);
// Charges memory that exists already, also above the limit.
RGPU_ABI void rgpu_lease_count(void* page, uint32_t slot, uint64_t bytes);
RGPU_ABI void rgpu_lease_release(void* page, uint32_t slot, uint64_t bytes);
// What the programs have allocated; and what is charged, which also has the credit of programs that
// allocate often.
RGPU_ABI uint64_t rgpu_lease_used(const void* page);
RGPU_ABI uint64_t rgpu_lease_charged(const void* page);
RGPU_ABI uint64_t rgpu_lease_slot_charged(const void* page, uint32_t slot);  // 0: no such slot
RGPU_ABI int rgpu_lease_claim_slot(void* page, uint64_t session);            // -1: all taken
RGPU_ABI void rgpu_lease_clear_slot(void* page, uint32_t slot);
RGPU_ABI void rgpu_lease_set_limit(void* page, uint64_t memory_limit_bytes);
RGPU_ABI uint64_t rgpu_lease_limit(const void* page);
RGPU_ABI void rgpu_lease_set_shares(void* page, uint32_t request_ppm, uint32_t limit_ppm);
RGPU_ABI void rgpu_lease_set_state(void* page, uint32_t state);  // 1 active, 2 paused, 3 ended
// session, used_bytes, peak_bytes, launches, copy_bytes, busy_ns, refused, copies, held_back_ns.
// 0: no such slot.
RGPU_ABI int rgpu_lease_read_slot(const void* page, uint32_t slot, uint64_t values[9]);
// 1: the driver is loading or compiling code for the slot's session.
RGPU_ABI int rgpu_lease_compiling(const void* page, uint32_t slot);

// --- the token in the page (lease/token.h) ---
// phase: 0 off, 1 none, 2 prepare, 3 slice, 4 open, 5 recalled.  Times are CLOCK_MONOTONIC, in ns.
RGPU_ABI void rgpu_token_write(void* page, uint32_t phase, uint64_t generation, uint64_t start_ns,
                               uint64_t slice_ns);
// phase, generation, start_ns, slice_ns.
RGPU_ABI void rgpu_token_read(const void* page, uint64_t values[4]);
RGPU_ABI void rgpu_token_heartbeat(void* page, uint64_t now_ns);
// Sums over the slots whose bits are set: workers, active, wanting, near_end, spent, kernel_us,
// in_flight_ns, busy_ns, held_back_ns, oldest_alive_ns, drained_ns.
RGPU_ABI void rgpu_token_demand(const void* page, uint64_t generation, uint64_t slots,
                                uint64_t values[11]);
// For tests, which play a worker: writes a slot's active_gen, near_end_gen, spent_gen, wants,
// kernel_us, in_flight_ns, alive_ns, held_back_ns, drained_ns.
RGPU_ABI void rgpu_token_write_slot(void* page, uint32_t slot, const uint64_t values[9]);
// The slot's session, then the values that rgpu_token_write_slot writes. 0: no such slot.
RGPU_ABI int rgpu_token_read_slot(const void* page, uint32_t slot, uint64_t values[10]);
// Sleeps until the token is written again, or for timeout_ns. `futex` comes from rgpu_token_futex.
RGPU_ABI void rgpu_token_wait(const void* page, uint32_t futex, uint64_t timeout_ns);
RGPU_ABI uint32_t rgpu_token_futex(const void* page);

// --- the measuring end of a probe (probe/line.h) ---
// The URI schemes that this library connects to, with spaces between them.
RGPU_ABI void rgpu_probe_schemes(char* names, size_t names_bytes);
// Connects and sends PROBE. `times_ns` gets the time to connect and the time until the offer
// arrived. `*offer_bytes` is the capacity of `offer` before, and its length after. Null: `why` is a
// sentence.
RGPU_ABI void* rgpu_probe_open(const char* uri, int timeout_ms, int life_ms, uint64_t times_ns[2],
                               uint8_t* offer, size_t* offer_bytes, char* why, size_t why_bytes);
// Lets the rest of the probe take at most life_ms; then the line breaks.
RGPU_ABI void rgpu_probe_limit(void* line, int life_ms);
RGPU_ABI void rgpu_probe_close(void* line);
RGPU_ABI void rgpu_probe_error(const void* line, char* why, size_t why_bytes);
RGPU_ABI void rgpu_probe_kind(const void* line, char* kind, size_t kind_bytes);
// Makes round trips of 64 bytes and returns their number. `ns` has room for `count`. Here and below
// -1 means that the line is broken; rgpu_probe_error says why.
RGPU_ABI int64_t rgpu_probe_ping(void* line, uint32_t count, int time_ms, uint64_t* ns);
// Moves a train of at most `bytes`, and begins no piece after `time_ms` (0: no limit). `values`
// gets total_ns, bytes, and then a pair of bytes and ns for each arrival. Returns the number of
// values.
RGPU_ABI int64_t rgpu_probe_train(void* line, int down, uint64_t bytes, uint32_t piece, int time_ms,
                                  uint64_t* values, size_t capacity);
// Sends `count` messages of 64 bytes in batches, and waits for one answer. `values` is as above,
// with messages in place of bytes.
RGPU_ABI int64_t rgpu_probe_count(void* line, uint32_t count, uint32_t batch, uint64_t* values,
                                  size_t capacity);

// --- the client's end of a claim (rgpu_common/wire/claim.py) ---
// Connects and sends `hello`, a whole frame.  Null: `why` is a sentence.
RGPU_ABI void* rgpu_claim_open(const char* uri, int timeout_ms, const uint8_t* hello,
                               size_t hello_bytes, char* why, size_t why_bytes);
// Waits for the next frame of the handshake. `*head_bytes` is the capacity of `head` before, and
// its length after. 1: a frame arrived. 0: the time passed. -1: the connection is lost or broken,
// and `why` says why.
RGPU_ABI int rgpu_claim_next(void* claim, int timeout_ms, uint16_t* opcode, int32_t* status,
                             uint8_t* head, size_t* head_bytes, char* why, size_t why_bytes);
// Returns a copy of the connection's descriptor that started programs inherit. Its number is at
// least `lowest` if the system allows that. -1: the transport has no descriptor.
RGPU_ABI int rgpu_claim_descriptor(const void* claim, int lowest);
RGPU_ABI void rgpu_claim_close(void* claim);

// --- the array seam's line (rgpu_common/arrays/line.py) ---
// A message has a head of at most 64 KiB and a body of any size. 1: done. 0: the time passed, or
// the line was woken; call again, which goes on where it stopped. -1: the line is lost or broken,
// and rgpu_line_error may say why.
typedef struct {
  uint32_t kind;
  uint32_t opcode;
  int32_t status;
  uint32_t head_bytes;
} rgpu_line_fields;
typedef struct {
  const void* data;
  uint64_t bytes;
} rgpu_line_part;
RGPU_ABI void* rgpu_line_open(const char* uri, int timeout_ms, char* why, size_t why_bytes);
// Takes ownership of a connected SOCK_STREAM descriptor. Null: it is no such socket.
RGPU_ABI void* rgpu_line_adopt(int fd);
// Begins a message; rgpu_line_push sends it, in as many calls as are needed. Until then the memory
// of `parts`, which are the body, must not change. The head is copied.
RGPU_ABI int rgpu_line_send(void* line, const rgpu_line_fields* fields, const uint8_t* head,
                            const rgpu_line_part* parts, uint32_t count);
RGPU_ABI int rgpu_line_push(void* line, int timeout_ms);
// How many bytes rgpu_line_push has left to send.
RGPU_ABI uint64_t rgpu_line_left(const void* line);
// Waits for the next message. `head` has room for 64 KiB. The body must be read before the next.
RGPU_ABI int rgpu_line_next(void* line, int timeout_ms, rgpu_line_fields* fields, uint8_t* head,
                            uint64_t* body_bytes);
// Reads the next `*bytes` of the body, or with `to` null drops them. `*bytes` gets how many were
// read.
RGPU_ABI int rgpu_line_read(void* line, void* to, uint64_t* bytes, int timeout_ms);
// Ends one wait in rgpu_line_next or rgpu_line_read, in whichever thread it is.
RGPU_ABI void rgpu_line_wake(void* line);
// 1: the other end has closed the line; messages from before may be left.
RGPU_ABI int rgpu_line_gone(void* line);
RGPU_ABI void rgpu_line_shutdown(void* line);
// In a forked child: gives up the connection without a word to the other end.
RGPU_ABI void rgpu_line_abandon(void* line);
RGPU_ABI void rgpu_line_error(const void* line, char* why, size_t why_bytes);
RGPU_ABI void rgpu_line_kind(const void* line, char* kind, size_t kind_bytes);
RGPU_ABI void rgpu_line_close(void* line);

// --- codec hooks for the tests of the wire ---
// Decodes the head of a command's request or reply, and encodes the result again. Returns the
// number of bytes written. -1: the decoder refused the head. -2: unknown opcode. -3: `capacity` is
// too small.
RGPU_ABI int64_t rgpu_wire_roundtrip(uint16_t opcode, int is_reply, const uint8_t* head,
                                     size_t bytes, uint8_t* out, size_t capacity);
// The same for a handshake message (opcode of the handshake table).
RGPU_ABI int64_t rgpu_wire_handshake(uint16_t opcode, const uint8_t* head, size_t bytes,
                                     uint8_t* out, size_t capacity);
// The same for the body of a message of the channel `compiler` (1) or `worker` (0).
RGPU_ABI int64_t rgpu_wire_channel(int compiler, uint32_t type, const uint8_t* body, size_t bytes,
                                   uint8_t* out, size_t capacity);
// 1: ParseHeader accepts these 40 bytes.
RGPU_ABI int rgpu_wire_header(const uint8_t* header);

#ifdef __cplusplus
}
#endif
