"""The mbarrier object as IR text. It is one 64-bit word, which the manual leaves open:

bits 0-19   arrivals that the phase still waits for
bits 20-39  arrivals of every later phase
bits 40-60  bytes that the phase still waits for, two's complement
bit 63      parity of the phase
"""

from __future__ import annotations

from typing import Final

COUNT_BITS: Final = 20
COUNT_MASK: Final = (1 << COUNT_BITS) - 1
BYTES_MASK: Final = (1 << COUNT_BITS + 1) - 1
PHASE_BIT: Final = 63
UPDATE: Final = "rgpu.mbarrier.update"

# Subtracts arrivals, from all phases and from this one, and adds bytes. If the phase then waits
# for nothing, the next one begins. Returns the word before.
_UPDATE: Final = f"""
define internal i64 @{UPDATE}(ptr %place, i64 %dropped, i64 %arrived, i64 %bytes) nounwind {{
%first = load atomic i64, ptr %place monotonic, align 8
br label %again
again:
%old = phi i64 [ %first, %0 ], [ %seen, %again ]
%pending.old = and i64 %old, {COUNT_MASK}
%pending.less = sub i64 %pending.old, %arrived
%pending = and i64 %pending.less, {COUNT_MASK}
%expected.old = lshr i64 %old, {COUNT_BITS}
%expected.less = sub i64 %expected.old, %dropped
%expected = and i64 %expected.less, {COUNT_MASK}
%bytes.old = lshr i64 %old, {2 * COUNT_BITS}
%bytes.more = add i64 %bytes.old, %bytes
%left = and i64 %bytes.more, {BYTES_MASK}
%waits = or i64 %pending, %left
%done = icmp eq i64 %waits, 0
%phase.old = lshr i64 %old, {PHASE_BIT}
%step = zext i1 %done to i64
%phase = xor i64 %phase.old, %step
%next = select i1 %done, i64 %expected, i64 %pending
%word.phase = shl i64 %phase, {PHASE_BIT}
%word.left = shl i64 %left, {2 * COUNT_BITS}
%word.expected = shl i64 %expected, {COUNT_BITS}
%word.high = or i64 %word.phase, %word.left
%word.low = or i64 %word.expected, %next
%word = or i64 %word.high, %word.low
%pair = cmpxchg ptr %place, i64 %old, i64 %word acq_rel acquire, align 8
%seen = extractvalue {{ i64, i1 }} %pair, 0
%stored = extractvalue {{ i64, i1 }} %pair, 1
br i1 %stored, label %end, label %again
end:
ret i64 %old
}}"""
HELPERS: Final = {UPDATE: _UPDATE}
