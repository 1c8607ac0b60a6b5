// Shared libraries that are found at run time, so that rgpu is built and starts without them. They
// are never unloaded, because their functions are used until the process ends.
#pragma once

#include <cstring>
#include <initializer_list>
#include <string>

namespace rgpu::base {

// One row of a library's table: a function's name, and where its address goes.
class LibraryFunction {
 public:
  template <typename Function>
  LibraryFunction(const char* name, Function** to) : name_(name), to_(to) {}

  const char* name() const { return name_; }
  void Set(void* address) const { std::memcpy(to_, &address, sizeof address); }

 private:
  const char* name_;
  void* to_;
};

// The row of the member `name` of the struct `table`. The member has the function's own name.
#define RGPU_FUNCTION(table, name) \
  ::rgpu::base::LibraryFunction { #name, &(table).name }

// Opens the first of `names` that loads. Null: `why` has the loader's reason for each of them.
void* OpenLibrary(std::initializer_list<const char*> names, std::string* why);

// The same, but opens only the library that the environment variable `variable` names, if it is
// set and not empty.
void* OpenLibrary(const char* variable, std::initializer_list<const char*> names, std::string* why);

// The value of a variable that may name a library. Null: it is unset or empty.
const char* LibraryNamedBy(const char* variable);

// Sets all `functions`. False: `why` names the first one that the library does not have.
bool FindFunctions(void* library, std::initializer_list<LibraryFunction> functions,
                   std::string* why);

// What one attempt to load a library has given: its functions, or why there are none.
template <typename Api>
struct LoadedLibrary {
  Api api{};
  std::string failure;  // empty: all of `api` is set

  // Null: `why`, if given, gets the failure.
  const Api* Get(std::string* why) const {
    if (failure.empty()) return &api;
    if (why != nullptr) *why = failure;
    return nullptr;
  }
};

}  // namespace rgpu::base
