// The one sentence for programs that ask for the driver's private tables.
#pragma once

namespace rgpu::shim {

// Prints it, once per process.
void ExplainPrivateTables();

}  // namespace rgpu::shim
