// What every exported function does before its body: it checks that nvmlInit was called, and finds
// the device.
#pragma once

#include <memory>
#include <string>

#include "gen/handshake.gen.h"
#include "gen/nvml_abi.gen.h"
#include "rgpu_client/nvml/table.h"

namespace rgpu::nvml {

class Entry {
 public:
  Entry();
  // False: the function returns `status`.
  bool ok() const { return status_ == NVML_SUCCESS; }
  nvmlReturn_t status() const { return status_; }
  Table& table() const { return *table_; }
  // The device of a handle. NVML_ERROR_INVALID_ARGUMENT: there is none.
  View Look(nvmlDevice_t handle, Age age) const;

 private:
  nvmlReturn_t status_ = NVML_SUCCESS;
  std::shared_ptr<Table> table_;  // kept alive if another thread calls nvmlShutdown
};

// Counts one more nvmlInit. must_answer: it fails if no server answers.
nvmlReturn_t Begin(bool must_answer);
// Undoes one nvmlInit.
void End();

// Prints a sentence on stderr, unless it was the last one.
void SayOnce(const std::string& sentence);

// The answer of a function that gives one error; before nvmlInit, that one.
nvmlReturn_t Refuse(nvmlReturn_t error);

// Writes the text and its NUL. NVML_ERROR_INSUFFICIENT_SIZE: they are longer than `length`.
nvmlReturn_t CopyText(const std::string& text, char* to, unsigned length);

// The node's reading of a device; NVML_ERROR_NOT_SUPPORTED: it has none.
nvmlReturn_t Read(const View& of, wire::ReadingKey key, unsigned long long* value);
nvmlReturn_t Read(const View& of, wire::ReadingKey key, unsigned* value);

}  // namespace rgpu::nvml
