// A place on the PCI bus of the node.
#pragma once

#include <stdio.h>

#include <optional>
#include <string>

namespace rgpu::nvml {

struct Pci {
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned device = 0;

  bool operator==(const Pci&) const = default;
};

// Parses "0000:3B:00.0", "00000000:3B:00.0" or "3B:00.0".
inline std::optional<Pci> ParsePci(const std::string& text) {
  Pci pci;
  int end = 0;
  const char* from = text.c_str();
  if (sscanf(from, "%8x:%2x:%2x.%*1x%n", &pci.domain, &pci.bus, &pci.device, &end) != 3 ||
      end == 0) {
    pci.domain = 0;
    end = 0;
    if (sscanf(from, "%2x:%2x.%*1x%n", &pci.bus, &pci.device, &end) != 2 || end == 0) {
      return std::nullopt;
    }
  }
  if (from[end] != '\0') return std::nullopt;
  return pci;
}

}  // namespace rgpu::nvml
