#include "rgpu_common/native/base/library.h"

#include <dlfcn.h>

#include <cstdlib>

namespace rgpu::base {

void* OpenLibrary(std::initializer_list<const char*> names, std::string* why) {
  std::string reasons;
  for (const char* name : names) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
    const char* reason = dlerror();
    reasons += (reasons.empty() ? "" : "; ") + std::string(reason != nullptr ? reason : name);
  }
  *why = reasons;
  return nullptr;
}

void* OpenLibrary(const char* variable, std::initializer_list<const char*> names,
                  std::string* why) {
  const char* named = LibraryNamedBy(variable);
  return named != nullptr ? OpenLibrary({named}, why) : OpenLibrary(names, why);
}

const char* LibraryNamedBy(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

bool FindFunctions(void* library, std::initializer_list<LibraryFunction> functions,
                   std::string* why) {
  for (const LibraryFunction& function : functions) {
    void* address = dlsym(library, function.name());
    if (address == nullptr) {
      *why = std::string("the library has no function ") + function.name();
      return false;
    }
    function.Set(address);
  }
  return true;
}

}  // namespace rgpu::base
