"""The generated facts of encoded requests, which the executor reads before it decodes them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from cudaspec import generate, rows
from cudaspec.model import DEVICE_TIME

ROOT = Path(__file__).resolve().parents[2]
MOST = (1 << 64) - 1
MAIN = """
#include <cstdio>
#include <vector>
#include "gen/codec.gen.h"
#include "gen/work.gen.h"
using namespace rgpu;
template <typename Request>
void Say(Opcode opcode, const Request& request, size_t cut = 0) {
  std::vector<uint8_t> head;
  wire::Writer writer(&head);
  Put(writer, request);
  const wire::ByteView view = wire::Bytes(head.data(), head.size() - cut);
  const CommandWork work = WorkOf(opcode, view, 77);
  std::printf("%d %d %lu %lu %lu %lu event %lu\\n", static_cast<int>(work.kind),
              static_cast<int>(work.bound), work.bytes, work.function, work.kernel, work.exec,
              EventOf(opcode, view));
}
int main() {
  constexpr uint64_t kBig = uint64_t{1} << 40;
  Say(Opcode::rgpuCopyHtoD, rgpuCopyHtoD_Request{1, 2, 3, 4, 5, 0});
  Say(Opcode::rgpuCopyDtoH, rgpuCopyDtoH_Request{1, 2, 3, 4, 5});
  Say(Opcode::rgpuMemset, rgpuMemset_Request{1, 2, 4, 0, 3, 5, 6, 0});
  Say(Opcode::rgpuMemset, rgpuMemset_Request{1, 2, 4, 0, kBig, kBig, 6, 0});
  Say(Opcode::rgpuCopyInDirect, rgpuCopyInDirect_Request{1, 9, 3}, 20);
  rgpuLaunch_Request launch;
  launch.function = 8;
  launch.kernel = 9;
  Say(Opcode::rgpuLaunch, launch);
  Say(Opcode::rgpuGraphLaunch, rgpuGraphLaunch_Request{5, 1, 0});
  Say(Opcode::rgpuEventRecord, rgpuEventRecord_Request{6, 1, 2, 3});
  Say(Opcode::rgpuStreamWaitEvent, rgpuStreamWaitEvent_Request{1, 6, 0});
  Say(Opcode::rgpuEventElapsedTime, rgpuEventElapsedTime_Request{6, 7});
}
"""
# kind (0: none), bound (0: lease, 2: piece), bytes, function, kernel, executable graph, event
EXPECTED = f"""\
2 0 77 0 0 0 event 0
3 2 12 0 0 0 event 0
5 0 60 0 0 0 event 0
5 0 {MOST} 0 0 0 event 0
2 1 0 0 0 0 event 0
1 0 0 8 9 0 event 0
6 0 0 0 0 5 event 0
0 0 0 0 0 0 event 6
0 0 0 0 0 0 event 0
0 0 0 0 0 0 event 0
"""


def test_work_of_encoded_requests(tmp_path: Path, spec: rows.Spec) -> None:
    compiler = shutil.which("g++") or shutil.which("clang++")
    assert compiler is not None, "no C++ compiler: apt-get install g++"
    generate.write(spec, tmp_path / "gen")
    (tmp_path / "main.cc").write_text(MAIN, encoding="utf-8")
    sources = [tmp_path / "main.cc", tmp_path / "gen" / "work.gen.cc"]
    program = tmp_path / "program"
    flags = ["-std=c++20", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    include = [f"-I{tmp_path}", f"-I{ROOT}"]
    subprocess.run([compiler, *flags, *include, *sources, "-o", program], check=True)
    said = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert said == EXPECTED


def test_every_command_of_device_time_has_work(spec: rows.Spec) -> None:
    charged = {c.name for c in spec.commands.values() if not DEVICE_TIME.isdisjoint(c.row.charges)}
    assert {c.name for c in spec.commands.values() if c.row.work} == charged
