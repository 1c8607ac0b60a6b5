// How a worker that is built with sanitizers runs: the daemon gives it an empty environment.

// It ends without destroying anything, and its sandbox hides what a search for leaks reads.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "detect_leaks=0";
}
