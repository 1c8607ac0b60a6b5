// How many processors this process may use at once: what spinning depends on.
#pragma once

#include <string>

namespace rgpu::base {

// The smaller of the allowed processors (sched_getaffinity) and the limit of the control group,
// rounded down; at least 1.  The control group is read once per process: call it before a sandbox
// takes the files away.
int UsableCpus();

// The limit of the control group in thousandths of a processor, or -1: none.  `group` is the text
// of /proc/self/cgroup, `mount` the folder of the control groups.
long CgroupMilliCpus(const std::string& group, const std::string& mount);

}  // namespace rgpu::base
