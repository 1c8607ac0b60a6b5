// Sanitizer options of a worker. They are compiled in because the daemon starts workers with an
// empty environment.

// The leak check is off: a worker ends without destroying anything, and its sandbox hides the files
// that the check reads.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "detect_leaks=0";
}
