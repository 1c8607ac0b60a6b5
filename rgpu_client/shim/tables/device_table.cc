#include "rgpu_client/shim/tables/device_table.h"

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "rgpu_common/native/base/text.h"

namespace rgpu::shim {
namespace {

std::string Trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// The place of the device that `entry` names. -1: it names none, or more than one.
int Match(const std::string& entry, const std::vector<wire::DeviceInfo>& devices) {
  if (entry.starts_with("GPU-")) {
    int found = -1;
    for (size_t i = 0; i < devices.size(); ++i) {
      if (!UuidText(devices[i].uuid).starts_with(entry)) continue;
      if (found >= 0) return -1;
      found = static_cast<int>(i);
    }
    return found;
  }
  char* end = nullptr;
  const long number = strtol(entry.c_str(), &end, 10);
  if (entry.empty() || *end != '\0') return -1;
  return number >= 0 && number < static_cast<long>(devices.size()) ? static_cast<int>(number) : -1;
}

constexpr int kPciDomain = 50;  // CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID
constexpr unsigned long kPciDomains = 0x10000;
constexpr size_t kDomainDigits = 4;

// The number that is written as the UUID, plus 1.
void NextUuid(std::array<uint8_t, 16>* uuid) {
  for (size_t i = uuid->size(); i-- > 0;) {
    if (++(*uuid)[i] != 0) return;
  }
}

// The same place in the next PCI domain. False: the text is no bus id.
bool NextDomain(wire::DeviceInfo* info) {
  std::string& bus_id = info->pci_bus_id;
  if (bus_id.size() <= kDomainDigits || bus_id[kDomainDigits] != ':') return false;
  const unsigned long domain = (strtoul(bus_id.c_str(), nullptr, 16) + 1) % kPciDomains;
  std::array<char, kDomainDigits + 1> digits{};
  snprintf(digits.data(), digits.size(), "%04lx", domain);
  bus_id.replace(0, kDomainDigits, digits.data());
  for (auto& [id, value] : info->attributes) {
    if (id == kPciDomain) value = static_cast<int>(domain);
  }
  return true;
}

}  // namespace

void MakeDistinct(std::vector<wire::DeviceInfo>* devices) {
  for (size_t i = 1; i < devices->size(); ++i) {
    wire::DeviceInfo& info = (*devices)[i];
    const auto end = devices->begin() + static_cast<std::ptrdiff_t>(i);
    const auto taken = [&](auto same) { return std::any_of(devices->begin(), end, same); };
    while (taken([&](const auto& other) { return other.uuid == info.uuid; })) NextUuid(&info.uuid);
    while (taken([&](const auto& other) { return other.pci_bus_id == info.pci_bus_id; }) &&
           NextDomain(&info)) {
    }
  }
}

std::string UuidText(const std::array<uint8_t, 16>& uuid) {
  std::string text = "GPU-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    std::array<char, 3> hex{};
    snprintf(hex.data(), hex.size(), "%02x", uuid[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += hex.data();
  }
  return text;
}

std::vector<int> VisibleDevices(const std::string& value,
                                const std::vector<wire::DeviceInfo>& devices) {
  std::vector<int> chosen;
  for (const std::string& entry : base::Pieces(value, ',')) {
    const int place = Match(Trim(entry), devices);
    if (place < 0) break;
    if (std::find(chosen.begin(), chosen.end(), place) != chosen.end()) return {};
    chosen.push_back(place);
  }
  return chosen;
}

Device* DeviceTable::FirstOf(unsigned session) {
  const auto of = [session](const Device& device) { return device.session == session; };
  const auto found = std::find_if(devices_.begin(), devices_.end(), of);
  return found == devices_.end() ? nullptr : &*found;
}

void DeviceTable::Fill(const std::vector<const wire::Welcome*>& welcomes,
                       const Settings& settings) {
  std::vector<wire::DeviceInfo> all;
  std::vector<std::pair<unsigned, int>> homes;  // by place in `all`: session, place in WELCOME
  for (unsigned session = 0; session < welcomes.size(); ++session) {
    for (const wire::DeviceInfo& info : welcomes[session]->devices) {
      homes.emplace_back(session, static_cast<int>(&info - welcomes[session]->devices.data()));
      all.push_back(info);
    }
  }
  MakeDistinct(&all);
  std::vector<int> places;
  if (settings.has_visible_devices) {
    places = VisibleDevices(settings.visible_devices, all);
  } else {
    for (size_t i = 0; i < all.size(); ++i) places.push_back(static_cast<int>(i));
  }
  for (const int place : places) {
    Device& device = devices_.emplace_back();
    device.ordinal = static_cast<int>(devices_.size()) - 1;
    std::tie(device.session, device.server_ordinal) = homes[static_cast<size_t>(place)];
    const wire::Welcome& welcome = *welcomes[device.session];
    device.info = all[static_cast<size_t>(place)];
    if (welcome.memory_limit_bytes != 0) {
      device.info.total_bytes = std::min(device.info.total_bytes, welcome.memory_limit_bytes);
    }
    for (const auto& [id, value] : device.info.attributes) {
      if (id < 0 || id >= Device::kAttributes) continue;
      device.attributes[static_cast<size_t>(id)] = value;
      device.known[static_cast<size_t>(id)] = true;
    }
  }
}

}  // namespace rgpu::shim
