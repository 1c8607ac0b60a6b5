/* The raw floors: what the same machine and transport do with plain blocking sockets and no rgpu.
 * An echo child answers 64 bytes with 64 bytes; a copy child swallows or produces bytes. */
#ifndef RGPU_BENCH_FLOOR_H
#define RGPU_BENCH_FLOOR_H

#include <stddef.h>
#include <stdint.h>

#define FLOOR_MESSAGE 64

/* Starts both children on `kind` ("unix" or "tcp"); returns connected descriptors. */
int floor_start(const char* kind, int* echo_fd, int* copy_fd);
/* Nanoseconds of one 64-byte ping-pong. */
uint64_t floor_ping(int fd);
/* Nanoseconds to send `bytes` to the child (until it has acknowledged the last one). */
uint64_t floor_send(int fd, const void* data, size_t bytes);
/* Nanoseconds to receive `bytes` from the child into `data`. */
uint64_t floor_receive(int fd, void* data, size_t bytes);
uint64_t now_ns(void);
int compare_u64(const void* a, const void* b);
uint64_t median(uint64_t* values, size_t count);

#endif
