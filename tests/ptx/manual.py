"""The instructions of the PTX manual (ISA 9.0) and their forms, and which of them the device runs.  Data only.

A line is an opcode and its modifiers in the manual's order: `a|b` is one of them, `?a|b` one of them or none.  What
the device does not run stands under the reason of its refusal.
https://docs.nvidia.com/cuda/parallel-thread-execution/#instructions
"""

from __future__ import annotations

from typing import Final

from rgpu_emu.ptx import forms_refused as why

INT: Final = "u16|u32|u64|s16|s32|s64"
RND: Final = "rn|rz|rm|rp"
BITS: Final = "b16|b32|b64"
ANY: Final = f"{BITS}|{INT}"
VIDEO: Final = "u32|s32 u32|s32 u32|s32"
MEMORY: Final = "b8|b16|b32|b64|b128|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64"
LOAD_SPACE: Final = "?const|global|local|param|param::entry|param::func|shared|shared::cta"
STORE_SPACE: Final = "?global|local|param|param::func|shared|shared::cta"
L1: Final = "?L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate"
L2: Final = "?L2::evict_normal|L2::evict_first|L2::evict_last"
HINT: Final = "?L2::cache_hint"
SIZE: Final = "?L2::64B|L2::128B|L2::256B"
SCOPE: Final = "cta|cluster|gpu|sys"
ATOMIC: Final = f"?relaxed|acquire|release|acq_rel ?{SCOPE} ?global|shared|shared::cta"
COMPARE: Final = "eq|ne|lt|le|gt|ge"
FCOMPARE: Final = "eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan"
ICOMPARE: Final = "eq|ne|lt|le|gt|ge|lo|ls|hi|hs"
SIXTEEN: Final = "m16n16k16|m8n32k16|m32n8k16"
FLAT: Final = "1d|2d|3d|a1d|a2d"
GEOMETRY: Final = f"{FLAT}|cube|acube"
OUTSIDE: Final = "?trap|clamp|zero"

RUNS: Final = f"""
add {INT}|u16x2|s16x2
add sat s32
sub {INT}
sub sat s32
mul hi|lo {INT}
mul wide u16|u32|s16|s32
mad hi|lo {INT}
mad wide u16|u32|s16|s32
mad hi sat s32
mul24 hi|lo u32|s32
mad24 hi|lo u32|s32
mad24 hi sat s32
sad {INT}
div {INT}
rem {INT}
abs s16|s32|s64
neg s16|s32|s64
min {INT}|u16x2|s16x2
min relu s16x2|s32
max {INT}|u16x2|s16x2
max relu s16x2|s32
popc b32|b64
clz b32|b64
bfind ?shiftamt u32|u64|s32|s64
fns b32
brev b32|b64
bfe u32|u64|s32|s64
bfi b32|b64
szext clamp|wrap u32|s32
bmsk clamp|wrap b32
dp4a u32|s32 u32|s32
dp2a lo|hi u32|s32 u32|s32

add cc u32|s32|u64|s64
addc ?cc u32|s32|u64|s64
sub cc u32|s32|u64|s64
subc ?cc u32|s32|u64|s64
mad hi|lo cc u32|s32|u64|s64
madc hi|lo ?cc u32|s32|u64|s64

testp finite|infinite|number|notanumber|normal|subnormal f32|f64
copysign f32|f64
add ?{RND} ?ftz ?sat f32
add ?{RND} f64
sub ?{RND} ?ftz ?sat f32
sub ?{RND} f64
mul ?{RND} ?ftz ?sat f32
mul ?{RND} f64
fma {RND} ?ftz ?sat f32
fma {RND} f64
mad ?{RND} ?ftz ?sat f32
mad {RND} f64
div approx|full ?ftz f32
div {RND} ?ftz f32
div {RND} f64
abs ?ftz f32
abs f64
neg ?ftz f32
neg f64
min ?ftz ?NaN f32
min ?ftz ?NaN xorsign abs f32
min f64
max ?ftz ?NaN f32
max ?ftz ?NaN xorsign abs f32
max f64
rcp approx ?ftz f32
rcp {RND} ?ftz f32
rcp {RND} f64
rcp approx ftz f64
sqrt approx ?ftz f32
sqrt {RND} ?ftz f32
sqrt {RND} f64
rsqrt approx ?ftz f32
rsqrt approx f64
rsqrt approx ftz f64
sin approx ?ftz f32
cos approx ?ftz f32
lg2 approx ?ftz f32
ex2 approx ?ftz f32
tanh approx f32

add ?rn ?ftz ?sat f16|f16x2
add ?rn bf16|bf16x2
sub ?rn ?ftz ?sat f16|f16x2
sub ?rn bf16|bf16x2
mul ?rn ?ftz ?sat f16|f16x2
mul ?rn bf16|bf16x2
fma rn ?ftz ?sat f16|f16x2
fma rn ?ftz relu f16|f16x2
fma rn ?relu bf16|bf16x2
neg ?ftz f16|f16x2
neg bf16|bf16x2
abs ?ftz f16|f16x2
abs bf16|bf16x2
min ?ftz ?NaN f16|f16x2
min ?ftz ?NaN xorsign abs f16|f16x2
min ?NaN bf16|bf16x2
min ?NaN xorsign abs bf16|bf16x2
max ?ftz ?NaN f16|f16x2
max ?ftz ?NaN xorsign abs f16|f16x2
max ?NaN bf16|bf16x2
max ?NaN xorsign abs bf16|bf16x2
tanh approx f16|f16x2|bf16|bf16x2
ex2 approx f16|f16x2
ex2 approx ftz bf16|bf16x2

set {ICOMPARE} u32|s32|f32 {ANY}
set {ICOMPARE} and|or|xor u32|s32|f32 {ANY}
set {FCOMPARE} ?ftz u32|s32|f32 f32|f64
set {FCOMPARE} and|or|xor ?ftz u32|s32|f32 f32|f64
setp {ICOMPARE} {ANY}
setp {ICOMPARE} and|or|xor {ANY}
setp {FCOMPARE} ?ftz f32|f64
setp {FCOMPARE} and|or|xor ?ftz f32|f64
selp {ANY}|f32|f64
slct {ANY}|f32|f64 s32
slct ?ftz {ANY}|f32|f64 f32
set {FCOMPARE} ?and|or|xor ?ftz f16|bf16|u16|s16|u32|s32 f16
set {FCOMPARE} ?and|or|xor f16|bf16|u16|s16|u32|s32 bf16
set {FCOMPARE} ?and|or|xor ?ftz f16x2|u32|s32 f16x2
set {FCOMPARE} ?and|or|xor bf16x2|u32|s32 bf16x2
set {ICOMPARE} ?and|or|xor f16|bf16 {ANY}
set {FCOMPARE} ?and|or|xor ?ftz f16 f32|f64
set {FCOMPARE} ?and|or|xor bf16 f32|f64
setp {FCOMPARE} ?and|or|xor ?ftz f16|f16x2
setp {FCOMPARE} ?and|or|xor bf16|bf16x2

and|or|xor|not pred|{BITS}
cnot {BITS}
lop3 ?or|and b32
shf l|r clamp|wrap b32
shl {BITS}
shr {ANY}

mov pred|{ANY}|f32|f64|b128
shfl sync up|down|bfly|idx b32
prmt b32 ?f4e|b4e|rc8|ecl|ecr|rc16
ld ?weak {LOAD_SPACE} ?ca|cg|cs|lu|cv {HINT} {SIZE} ?v2|v4|v8 {MEMORY}
ld ?weak {LOAD_SPACE} {L1} {L2} {HINT} {SIZE} ?v2|v4|v8 {MEMORY}
ld volatile {LOAD_SPACE} {SIZE} ?v2|v4|v8 {MEMORY}
ld relaxed|acquire {SCOPE} {LOAD_SPACE} {L1} {L2} {HINT} {SIZE} ?v2|v4|v8 {MEMORY}
ld mmio relaxed sys ?global {MEMORY}
ld global ?ca|cg|cs nc {HINT} {SIZE} ?v2|v4|v8 {MEMORY}
ld global nc {L1} {L2} {HINT} {SIZE} ?v2|v4|v8 {MEMORY}
ldu ?global ?v2|v4 {MEMORY}
st ?weak {STORE_SPACE} ?wb|cg|cs|wt {HINT} ?v2|v4|v8 {MEMORY}
st ?weak {STORE_SPACE} {L1} {L2} {HINT} ?v2|v4|v8 {MEMORY}
st volatile {STORE_SPACE} ?v2|v4|v8 {MEMORY}
st relaxed|release {SCOPE} {STORE_SPACE} {L1} {L2} {HINT} ?v2|v4|v8 {MEMORY}
st mmio relaxed sys ?global {MEMORY}
prefetch ?global|local L1|L2
prefetch global L2::evict_last|L2::evict_normal
prefetchu L1
applypriority ?global L2::evict_normal
discard ?global L2
createpolicy range ?global L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged ?L2::evict_first|L2::evict_unchanged b64
createpolicy fractional L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged ?L2::evict_first|L2::evict_unchanged b64
createpolicy cvt L2 b64
isspacep const|global|local|shared|shared::cta|param|param::entry
cvta ?to const|global|local|shared|shared::cta|param|param::entry u32|u64
cvt ?sat u8|u16|u32|u64|s8|s16|s32|s64 u8|u16|u32|u64|s8|s16|s32|s64
cvt {RND} ?sat f16|bf16|f32|f64 u8|u16|u32|u64|s8|s16|s32|s64
cvt rni|rzi|rmi|rpi ?ftz ?sat u8|u16|u32|u64|s8|s16|s32|s64 f16|f32|f64
cvt rni|rzi|rmi|rpi ?sat u8|u16|u32|u64|s8|s16|s32|s64 bf16
cvt rni|rzi|rmi|rpi ?sat f16 f16
cvt rni|rzi|rmi|rpi ?ftz ?sat f32 f32
cvt rni|rzi|rmi|rpi ?sat f64 f64
cvt rni|rzi|rmi|rpi bf16 bf16
cvt ?ftz ?sat f32 f16|bf16
cvt ?sat f64 f16|bf16
cvt ?ftz ?sat f64 f32
cvt {RND} ?ftz ?sat f32 f64
cvt {RND} ?sat f16|bf16 f64
cvt {RND} ?ftz ?sat f16 f32
cvt {RND} ?sat bf16 f32
cvt rn|rz ?relu ?satfinite f16|bf16 f32
cvt rn|rz ?relu ?satfinite f16x2|bf16x2 f32
cvt rna ?satfinite tf32 f32
cvt rn|rz ?satfinite ?relu tf32 f32
cvt rn satfinite ?relu e4m3x2|e5m2x2 f32|f16x2
cvt rn ?relu f16x2 e4m3x2|e5m2x2
cvt pack sat u16|s16 s32
cvt pack sat u2|s2|u4|s4|u8|s8 s32 b32
cp async ca|cg shared|shared::cta global {HINT} {SIZE}
cp async commit_group
cp async wait_group
cp async wait_all
cp async mbarrier arrive ?noinc ?shared|shared::cta b64

tex ?base|level {GEOMETRY} v4 u32|s32|f16|f32 f32
tex ?base|level {GEOMETRY} v2 f16x2 f32
tex ?base|level {FLAT} v4 u32|s32|f16|f32 s32
tex ?base|level {FLAT} v2 f16x2 s32
tex grad {GEOMETRY} v4 u32|s32|f16|f32 f32
tex grad {GEOMETRY} v2 f16x2 f32
tld4 r|g|b|a 2d|a2d|cube|acube v4 u32|s32|f32 f32
txq width|height|depth|channel_data_type|channel_order|normalized_coords|array_size|num_mipmap_levels|num_samples b32
txq level width|height|depth b32
txq force_unnormalized_coords|filter_mode|addr_mode_0|addr_mode_1|addr_mode_2 b32
istypep texref|samplerref|surfref
suld b {FLAT} ?ca|cg|cs|cv ?v2|v4 b8|b16|b32|b64 {OUTSIDE}
sust b {FLAT} ?wb|cg|cs|wt ?v2|v4 b8|b16|b32|b64 {OUTSIDE}
sust p 1d|2d|3d ?v2|v4 b32 {OUTSIDE}
sured b add 1d|2d|3d u32|u64|s32 trap|clamp|zero
sured b min|max 1d|2d|3d u32|u64|s32|s64 trap|clamp|zero
sured b and|or 1d|2d|3d b32 trap|clamp|zero
sured p add|min|max|and|or 1d|2d|3d b32 trap|clamp|zero
sured p min|max 1d|2d|3d b64 trap|clamp|zero
suq width|height|depth|channel_data_type|channel_order|array_size|memory_layout b32

bra ?uni
brx idx ?uni
call ?uni
ret ?uni
exit

bar|barrier ?cta sync
bar|barrier ?cta arrive
bar|barrier ?cta red popc u32
bar|barrier ?cta red and|or pred
barrier ?cta sync|arrive aligned
barrier ?cta red popc aligned u32
barrier ?cta red and|or aligned pred
bar warp sync
membar cta|gl|sys
membar proxy alias|async|async.global|async.shared::cta
fence ?sc|acq_rel|acquire|release {SCOPE}
fence proxy alias|async|async.global|async.shared::cta
atom {ATOMIC} and|or|xor|exch {HINT} b32|b64
atom {ATOMIC} cas b16|b32|b64
atom {ATOMIC} add {HINT} u32|s32|u64|f32|f64
atom {ATOMIC} min|max {HINT} u32|s32|u64|s64
atom {ATOMIC} inc|dec {HINT} u32
atom {ATOMIC} add noftz {HINT} f16|f16x2|bf16|bf16x2
red ?relaxed|release ?{SCOPE} ?global|shared|shared::cta and|or|xor {HINT} b32|b64
red ?relaxed|release ?{SCOPE} ?global|shared|shared::cta add {HINT} u32|s32|u64|f32|f64
red ?relaxed|release ?{SCOPE} ?global|shared|shared::cta min|max {HINT} u32|s32|u64|s64
red ?relaxed|release ?{SCOPE} ?global|shared|shared::cta inc|dec {HINT} u32
red ?relaxed|release ?{SCOPE} ?global|shared|shared::cta add noftz {HINT} f16|f16x2|bf16|bf16x2
vote sync all|any|uni pred
vote sync ballot b32
match any|all sync b32|b64
activemask b32
redux sync add|min|max u32|s32
redux sync and|or|xor b32
redux sync min|max ?abs ?NaN f32
griddepcontrol launch_dependents|wait
elect sync
mbarrier init|inval ?shared|shared::cta b64
mbarrier expect_tx|complete_tx ?relaxed ?cta|cluster ?shared|shared::cta b64
mbarrier arrive|arrive_drop ?release|relaxed ?cta|cluster ?shared|shared::cta b64
mbarrier arrive|arrive_drop expect_tx ?release|relaxed ?cta|cluster ?shared|shared::cta b64
mbarrier arrive|arrive_drop noComplete ?release ?cta ?shared|shared::cta b64
mbarrier test_wait|try_wait ?parity ?acquire|relaxed ?cta|cluster ?shared|shared::cta b64
mbarrier pending_count b64

wmma load a|b sync aligned row|col {SIXTEEN} ?global|shared|shared::cta f16|bf16|s8|u8
wmma load c sync aligned row|col {SIXTEEN} ?global|shared|shared::cta f16|f32|s32
wmma load a|b sync aligned row|col m16n16k8 ?global|shared|shared::cta tf32
wmma load c sync aligned row|col m16n16k8 ?global|shared|shared::cta f32
wmma load a|b|c sync aligned row|col m8n8k4 ?global|shared|shared::cta f64
wmma load a sync aligned row m8n8k32 ?global|shared|shared::cta s4|u4
wmma load b sync aligned col m8n8k32 ?global|shared|shared::cta s4|u4
wmma load a sync aligned row m8n8k128 ?global|shared|shared::cta b1
wmma load b sync aligned col m8n8k128 ?global|shared|shared::cta b1
wmma load c sync aligned row|col m8n8k32|m8n8k128 ?global|shared|shared::cta s32
wmma store d sync aligned row|col {SIXTEEN} ?global|shared|shared::cta f16|f32|s32
wmma store d sync aligned row|col m16n16k8 ?global|shared|shared::cta f32
wmma store d sync aligned row|col m8n8k4 ?global|shared|shared::cta f64
wmma store d sync aligned row|col m8n8k32|m8n8k128 ?global|shared|shared::cta s32
wmma mma sync aligned row|col row|col {SIXTEEN} f16|f32 f16|f32
wmma mma sync aligned row|col row|col {SIXTEEN} s32 u8 u8 s32 ?satfinite
wmma mma sync aligned row|col row|col {SIXTEEN} s32 s8 s8 s32 ?satfinite
wmma mma sync aligned row|col row|col {SIXTEEN} f32 bf16 bf16 f32
wmma mma sync aligned row|col row|col m16n16k8 f32 tf32 tf32 f32
wmma mma sync aligned row|col row|col m8n8k4 ?{RND} f64 f64 f64 f64
wmma mma sync aligned row col m8n8k32 s32 s4 s4 s32 ?satfinite
wmma mma sync aligned row col m8n8k32 s32 u4 u4 s32 ?satfinite
wmma mma xor|and popc sync aligned row col m8n8k128 s32 b1 b1 s32
mma sync aligned m8n8k4 row|col row|col f32 f16 f16 f16|f32
mma sync aligned m8n8k4 row|col row|col f16 f16 f16 f16
mma sync aligned m16n8k8 row col f16 f16 f16 f16
mma sync aligned m16n8k8 row col f32 f16 f16 f32
mma sync aligned m16n8k16 row col f16|f32 f16 f16 f16|f32
mma sync aligned m16n8k8|m16n8k16 row col f32 bf16 bf16 f32
mma sync aligned m16n8k4|m16n8k8 row col f32 tf32 tf32 f32
mma sync aligned m16n8k16|m16n8k32 row col f16|f32 e4m3|e5m2 e4m3|e5m2 f16|f32
mma sync aligned m8n8k4|m16n8k4|m16n8k8|m16n8k16 row col f64 f64 f64 f64
mma sync aligned m8n8k16|m16n8k16|m16n8k32 row col ?satfinite s32 u8|s8 u8|s8 s32
mma sync aligned m8n8k32|m16n8k32|m16n8k64 row col ?satfinite s32 u4|s4 u4|s4 s32
mma sync aligned m8n8k128|m16n8k128|m16n8k256 row col s32 b1 b1 s32 xor|and popc
mma sp|sp::ordered_metadata sync aligned m16n8k16|m16n8k32 row col f16 f16 f16 f16
mma sp|sp::ordered_metadata sync aligned m16n8k16|m16n8k32 row col f32 f16 f16 f32
mma sp|sp::ordered_metadata sync aligned m16n8k16|m16n8k32 row col f32 bf16 bf16 f32
mma sp|sp::ordered_metadata sync aligned m16n8k8|m16n8k16 row col f32 tf32 tf32 f32
mma sp|sp::ordered_metadata sync aligned m16n8k64 row col f32 e4m3|e5m2 e4m3|e5m2 f32
mma sp|sp::ordered_metadata sync aligned m16n8k32|m16n8k64 row col ?satfinite s32 u8|s8 u8|s8 s32
mma sp|sp::ordered_metadata sync aligned m16n8k64|m16n8k128 row col ?satfinite s32 u4|s4 u4|s4 s32
ldmatrix sync aligned m8n8 x1|x2|x4 ?trans ?shared|shared::cta b16
stmatrix sync aligned m8n8 x1|x2|x4 ?trans ?shared|shared::cta b16
movmatrix sync aligned m8n8 trans b16

stacksave u32|u64
stackrestore u32|u64
alloca u32|u64

vadd|vsub|vabsdiff|vmin|vmax {VIDEO} ?sat
vadd|vsub|vabsdiff|vmin|vmax {VIDEO} ?sat add|min|max
vshl|vshr u32|s32 u32|s32 u32 ?sat clamp|wrap
vshl|vshr u32|s32 u32|s32 u32 ?sat clamp|wrap add|min|max
vmad {VIDEO} ?sat ?shr7|shr15
vmad {VIDEO} po ?sat ?shr7|shr15
vset u32|s32 u32|s32 {COMPARE} ?add|min|max
vadd2|vsub2|vavrg2|vabsdiff2|vmin2|vmax2 {VIDEO} ?sat
vadd2|vsub2|vavrg2|vabsdiff2|vmin2|vmax2 {VIDEO} add
vadd4|vsub4|vavrg4|vabsdiff4|vmin4|vmax4 {VIDEO} ?sat
vadd4|vsub4|vavrg4|vabsdiff4|vmin4|vmax4 {VIDEO} add
vset2|vset4 u32|s32 u32|s32 {COMPARE} ?add

brkpt
nanosleep u32
pmevent ?mask
trap
"""

# Instructions that need sm_90 and that run here all the same, because they do not need its hardware.
RUNS_TOO: Final = f"""
cp async bulk shared::cta|shared::cluster global mbarrier::complete_tx::bytes {HINT}
cp async bulk shared::cluster shared::cta mbarrier::complete_tx::bytes
cp async bulk global shared::cta bulk_group {HINT}
cp async bulk prefetch L2 global {HINT}
cp async bulk commit_group
cp async bulk wait_group ?read
mbarrier arrive|arrive_drop ?release|relaxed ?cta|cluster shared::cluster b64
mbarrier expect_tx|complete_tx ?relaxed ?cta|cluster shared::cluster b64
fence mbarrier_init release cluster
fence proxy async.shared::cluster
"""

REFUSED: Final[dict[str, str]] = {
    why.CLUSTER: f"""
barrier cluster arrive ?release|relaxed ?aligned
barrier cluster wait ?acquire ?aligned
mapa ?shared::cluster u32|u64
getctarank ?shared::cluster u32|u64
isspacep shared::cluster
cvta ?to shared::cluster u32|u64
ld ?weak shared::cluster {MEMORY}
ld relaxed|acquire {SCOPE} shared::cluster {MEMORY}
st ?weak shared::cluster {MEMORY}
st relaxed|release {SCOPE} shared::cluster {MEMORY}
atom ?relaxed|acquire|release|acq_rel ?{SCOPE} shared::cluster add u32|s32|u64|f32|f64
red ?relaxed|release ?{SCOPE} shared::cluster add u32|s32|u64|f32|f64
st async weak shared::cluster mbarrier::complete_tx::bytes ?v2|v4 b32|b64|u32|u64|s32|s64|f32|f64
st async mmio release {SCOPE} global b8|b16|b32|b64
red async relaxed cluster shared::cluster mbarrier::complete_tx::bytes inc|dec|min|max|add|and|or|xor u32|s32|u64|b32
red async relaxed cluster mbarrier::complete_tx::bytes inc|dec|min|max|add|and|or|xor u32|s32|u64|b32
fence acquire sync_restrict::shared::cluster cluster
fence release sync_restrict::shared::cta cluster
fence proxy async::generic acquire sync_restrict::shared::cluster cluster
fence proxy async::generic release sync_restrict::shared::cta cluster
cp async bulk shared::cluster global mbarrier::complete_tx::bytes multicast::cluster {HINT}
cp async bulk tensor 1d|2d|3d|4d|5d shared::cluster global ?tile|im2col mbarrier::complete_tx::bytes multicast::cluster
cp reduce async bulk shared::cluster shared::cta mbarrier::complete_tx::bytes and|or|xor|add|inc|dec|min|max b32|u32|s32
""",
    why.TENSOR: f"""
cp async bulk tensor 1d|2d|3d|4d|5d shared::cta global ?tile|im2col mbarrier::complete_tx::bytes {HINT}
cp async bulk tensor 1d|2d|3d|4d|5d global shared::cta ?tile|im2col_no_offs bulk_group {HINT}
cp async bulk prefetch tensor 1d|2d|3d|4d|5d L2 global ?tile|im2col {HINT}
cp reduce async bulk tensor 1d|2d|3d|4d|5d global shared::cta add|min|max|inc|dec|and|or|xor ?tile bulk_group {HINT}
prefetch ?const|param tensormap
tensormap replace tile global_address|rank|box_dim|global_dim|global_stride|element_stride|elemtype|interleave_layout|swizzle_mode|fill_mode ?global|shared::cta b1024 b32|b64
tensormap cp_fenceproxy global shared::cta tensormap::generic release {SCOPE} sync aligned
fence proxy tensormap::generic release|acquire {SCOPE}
""",
    why.SM_90: f"""
cp reduce async bulk global shared::cta bulk_group {HINT} and|or|xor|add|inc|dec|min|max b32|u32|s32|u64|s64|b64|f16|bf16|f32|f64
atom ?relaxed|acquire|release|acq_rel ?{SCOPE} ?global add {HINT} v2|v4 f32
atom ?relaxed|acquire|release|acq_rel ?{SCOPE} ?global add|min|max noftz {HINT} v2|v4|v8 f16|bf16
atom ?relaxed|acquire|release|acq_rel ?{SCOPE} ?global add|min|max noftz {HINT} v2|v4 f16x2|bf16x2
atom {ATOMIC} cas|exch b128
red ?relaxed|release ?{SCOPE} ?global add {HINT} v2|v4 f32
red ?relaxed|release ?{SCOPE} ?global add|min|max noftz {HINT} v2|v4|v8 f16|bf16
red ?relaxed|release ?{SCOPE} ?global add|min|max noftz {HINT} v2|v4 f16x2|bf16x2
fma rn oob ?relu f16|f16x2|bf16|bf16x2
""",
    why.MULTICAST: f"""
multimem ld_reduce weak ?global add|min|max|and|or|xor b32|b64|u32|u64|s32|s64|f16|f16x2|bf16|bf16x2|f32|f64
multimem st weak|relaxed|release ?{SCOPE} ?global b32|b64|u32|u64|s32|s64|f16|f16x2|bf16|bf16x2|f32|f64
multimem red relaxed|release ?{SCOPE} ?global add|min|max|and|or|xor b32|b64|u32|u64|s32|s64|f16x2|bf16x2|f32|f64
multimem cp async bulk global shared::cta bulk_group
multimem cp reduce async bulk global shared::cta bulk_group add u32
""",
    why.SM_90A: """
wgmma mma_async sync aligned m64n8k16|m64n256k16 f16|f32 f16 f16
wgmma mma_async sp sync aligned m64n8k32 f16|f32 f16 f16
wgmma mma_async sync aligned m64n8k256 s32 b1 b1 and popc
wgmma fence sync aligned
wgmma commit_group sync aligned
wgmma wait_group sync aligned
setmaxnreg inc|dec sync aligned u32
""",
    why.SM_100: f"""
tcgen05 alloc|dealloc cta_group::1|cta_group::2 sync aligned b32
tcgen05 relinquish_alloc_permit cta_group::1|cta_group::2 sync aligned
tcgen05 ld|st sync aligned 16x64b|16x128b|16x256b|32x32b x1|x2|x4|x8|x16|x32|x64|x128 b32
tcgen05 cp cta_group::1|cta_group::2 128x256b|4x256b|128x128b
tcgen05 shift cta_group::1|cta_group::2 down
tcgen05 mma cta_group::1|cta_group::2 kind::f16|kind::tf32|kind::f8f6f4|kind::i8
tcgen05 fence::before_thread_sync|fence::after_thread_sync
tcgen05 wait::ld|wait::st sync aligned
tcgen05 commit cta_group::1|cta_group::2 mbarrier::arrive::one b64
clusterlaunchcontrol try_cancel async ?shared::cta mbarrier::complete_tx::bytes b128
clusterlaunchcontrol query_cancel is_canceled pred b128
mma sync aligned m16n8k32 row col kind::f8f6f4 f16|f32 e4m3|e5m2|e3m2|e2m3|e2m1 e4m3|e5m2|e3m2|e2m3|e2m1 f16|f32
mma sync aligned m16n8k64 row col kind::mxf4|kind::mxf4nvf4 block_scale ?scale_vec::2X|scale_vec::4X f32 e2m1 e2m1 f32 ue8m0
ldmatrix sync aligned m16n16 x1|x2 trans ?shared|shared::cta b8
ldmatrix sync aligned m8n16 x1|x2|x4 ?shared|shared::cta b8x16 b6x16_p32|b4x16_p64
stmatrix sync aligned m16n8 x1|x2|x4 trans ?shared|shared::cta b8
st bulk ?weak ?shared::cta
add|sub|mul ?{RND} ?ftz f32x2
fma {RND} ?ftz f32x2
add|sub ?{RND} ?sat f32 f16|bf16
fma {RND} ?sat f32 f16|bf16
min|max ?ftz ?NaN abs f32
cvt rs ?relu ?satfinite f16x2|bf16x2 f32
cvt rs ?relu satfinite e4m3x4|e5m2x4|e2m1x4|e2m3x4|e3m2x4 f32
cvt rn satfinite ?relu e2m1x2|e2m3x2|e3m2x2 f32
cvt rn ?relu f16x2 e2m1x2|e2m3x2|e3m2x2
cvt rz|rp ?satfinite ue8m0x2 f32|bf16x2
cvt rn bf16x2 ue8m0x2
cp async bulk global shared::cta bulk_group ?L2::cache_hint cp_mask
fabric submit commit_group
fabric wait sync_restrict::read|sync_restrict::reads
""",
    why.MULTISAMPLE: """
tex ?base 2dms|a2dms v4 u32|s32|f16|f32 s32
""",
    why.GRADIENTS: f"""
tex grad {FLAT} v4 u32|s32|f16|f32 s32
""",
    why.NO_SYNC: """
shfl up|down|bfly|idx b32
vote all|any|uni pred
vote ballot b32
""",
}
