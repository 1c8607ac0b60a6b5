// How many processors this process may use at the same time. Spinning pays only with more than one.
#pragma once

#include <string>

namespace rgpu::base {

// The smaller of the number of allowed processors (sched_getaffinity) and the limit of the control
// group, rounded down; at least 1. The limit is read from files at the first call, so a process
// must make that call before its sandbox closes.
int UsableCpus();

// The limit of the control group in thousandths of a processor. -1: there is none. `group` is the
// text of /proc/self/cgroup; `mount` is the folder where the control groups are mounted.
long CgroupMilliCpus(const std::string& group, const std::string& mount);

}  // namespace rgpu::base
