"""A kernel by whose effect a program counts its threads: a wrong count is work that was lost or ran
twice.
"""

PTX = b""".version 7.0
.target sm_50
.address_size 64
.visible .entry add_one(.param .u64 counter) {
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [counter];
  red.global.add.u32 [%rd1], 1;
  ret;
}
"""
