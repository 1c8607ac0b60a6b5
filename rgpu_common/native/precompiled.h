// Headers of the standard library that most files include. The build precompiles them, because
// reading them takes a third of the time that all files take to compile.
//
// Each file still includes what it uses: `make native` builds without this header.
#pragma once

#include <version>

#if defined(_LIBCPP_VERSION) && defined(__GLIBC__)
#if !__GLIBC_PREREQ(2, 30)
// LLVM's library waits by the wall clock where the C library has no pthread_cond_clockwait. A step
// of that clock backwards would make each wait longer. base/old_glibc.cc has that function.
#undef _LIBCPP_HAS_COND_CLOCKWAIT
#define _LIBCPP_HAS_COND_CLOCKWAIT 1
#endif
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>
