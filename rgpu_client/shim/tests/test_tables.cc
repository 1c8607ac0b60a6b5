// Tests of handles, addresses, credits, devices, host memory and compiler options.
#include <sys/mman.h>

#include "rgpu_client/shim/bands.h"
#include "rgpu_client/shim/host_region.h"
#include "rgpu_client/shim/jit_options.h"
#include "rgpu_client/shim/tables/address_map.h"
#include "rgpu_client/shim/tables/device_table.h"
#include "rgpu_client/shim/tables/reserved_addresses.h"
#include "rgpu_client/shim/tests/check.h"

namespace {

using namespace rgpu::shim;

Range MakeRange(uint64_t base, uint64_t bytes, RangeKind kind = RangeKind::kDevice) {
  Range range;
  range.base = base;
  range.bytes = bytes;
  range.kind = kind;
  range.context = 5;
  return range;
}

}  // namespace

TEST(HandlesAreNeverUsedTwice) {
  static auto& table = *new HandleTable;  // never deleted, as in a session
  const uint64_t first = table.Add(std::make_unique<Event>());
  CHECK(first > 2);
  CHECK(table.Find<Event>(first) != nullptr && table.Find<Stream>(first) == nullptr);
  CHECK(table.Remove(first) && !table.Remove(first));
  CHECK(table.Find<Event>(first) == nullptr);
  const uint64_t second = table.Add(std::make_unique<Stream>());
  CHECK(second > first);
  // The table of a later session continues the ids, and does not know handles of an earlier
  // session.
  static auto& later = *new HandleTable;
  CHECK(later.Add(std::make_unique<Stream>()) > second);
  CHECK(later.Find<Stream>(second) == nullptr);
  CHECK(table.Find<Stream>(~0ULL) == nullptr && table.Find<Stream>(0) == nullptr);
  int live = 0;
  table.ForEach([&](Object*) { ++live; });
  CHECK(live == 1);
}

TEST(HandlesNeverRunOut) {
  static auto& table = *new HandleTable;
  constexpr uint64_t kPlaces = 1ULL << 26;  // number of ids that have places at the same time
  const uint64_t stays = table.Add(std::make_unique<Stream>());
  const auto come_and_go = [&](uint64_t count) {
    uint64_t last = stays;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t id = table.Add(std::make_unique<Event>());
      if (id <= last || !table.Remove(id)) return uint64_t{0};
      last = id;
    }
    return last;
  };
  for (int round = 1; round <= 3; ++round) {
    const uint64_t stale = come_and_go(20'000);
    CHECK(stale != 0);
    HandleTable::Skip(kPlaces - 1);
    const uint64_t same_place = table.Add(std::make_unique<Event>());
    CHECK(same_place == stale + kPlaces && table.Find<Event>(same_place) != nullptr);
    CHECK(table.Find<Event>(stale) == nullptr && !table.Remove(stale));
    CHECK(table.Remove(same_place));
    CHECK(table.Find<Stream>(stays) != nullptr);
    // The next ids belong to the place that the stream occupies, so the table skips them.
    HandleTable::Skip((stays - same_place - 1) % kPlaces);
    const uint64_t passed = come_and_go(1);
    CHECK(passed != 0 && passed % kPlaces != stays % kPlaces);
    CHECK(table.Find<Stream>(stays) != nullptr);
  }
  CHECK(table.chunks() <= 3);
  const uint64_t context = table.Add(std::make_unique<Context>());
  CHECK(context <= UINT32_MAX && table.Find<Context>(context) != nullptr);
  int live = 0;
  table.ForEach([&](Object*) { ++live; });
  CHECK(live == 2);
}

TEST(AddressesResolveInside) {
  AddressMap map;
  CHECK(map.Add(MakeRange(1000, 100)) && map.Add(MakeRange(1100, 50)));
  CHECK(!map.Add(MakeRange(1149, 10)) && !map.Add(MakeRange(900, 101)) &&
        !map.Add(MakeRange(1, 0)));
  CHECK(map.Find(1099)->base == 1000 && map.Find(1100)->base == 1100);
  CHECK(!map.Find(999) && !map.Find(1150));
  CHECK(map.Find(1000, 100) && !map.Find(1000, 101) && !map.Find(1050, ~0ULL));
  CHECK(map.Find(1000)->buffer_id != map.Find(1100)->buffer_id);
}

TEST(OnlyABaseIsFreed) {
  AddressMap map;
  map.Add(MakeRange(4096, 4096));
  map.Add(MakeRange(65536, 64, RangeKind::kPinned));
  CHECK(!map.Take(4097, RangeKind::kDevice, RangeKind::kPool));
  CHECK(!map.Take(65536, RangeKind::kDevice, RangeKind::kPool));
  CHECK(map.Take(4096, RangeKind::kDevice, RangeKind::kPool));
  CHECK(!map.Take(4096, RangeKind::kDevice, RangeKind::kPool));
  map.DropContext(5);
  CHECK(!map.Find(65536));
}

TEST(MappingsThatAdjoinAreOneRange) {
  AddressMap map;
  map.Add(MakeRange(1000, 100, RangeKind::kMapped));
  map.Add(MakeRange(1100, 50, RangeKind::kMapped));
  map.Add(MakeRange(1150, 50));
  map.Add(MakeRange(1300, 50, RangeKind::kMapped));
  CHECK(map.MayAccess(1000, 150) && map.MayAccess(1099, 2) && !map.MayAccess(1099, 52));
  CHECK(map.MayAccess(1150, 50) && !map.MayAccess(1150, 51) && !map.MayAccess(1340, 11));
  CHECK(!map.MayAccess(999, 1) && !map.MayAccess(1250, 1) && !map.MayAccess(1000, ~0ULL));
  CHECK(map.Tiling(1000, 150).size() == 2 && map.Tiling(1100, 50).size() == 1);
  CHECK(map.Tiling(1000, 149).empty() && map.Tiling(1001, 149).empty());
  CHECK(map.Tiling(1000, 200).empty() && map.Tiling(1250, 50).empty());
  map.SetAccess(1100, 0);
  CHECK(map.MayAccess(1000, 100) && !map.MayAccess(1000, 101) && !map.MayAccess(1100, 1));
  CHECK(map.Meets(1299, 2) && !map.Meets(1200, 100));
}

TEST(ReservationsAreTakenWhole) {
  ReservedAddresses reserved;
  CHECK(reserved.Add(1000, {100, false}) && reserved.Add(1100, {100, true}));
  CHECK(!reserved.Add(1050, {1, false}) && !reserved.Add(900, {101, false}));
  CHECK(!reserved.Add(2000, {0, false}) && !reserved.Add(~0ULL - 5, {10, false}));
  CHECK(reserved.Holds(1000, 100) && reserved.Holds(1199, 1) && !reserved.Holds(1050, 100));
  CHECK(!reserved.Take(1000, 50) && !reserved.Take(1001, 99));
  CHECK(reserved.Take(1000, 100) && !reserved.Holds(1000, 1) && reserved.Take(1100, 100)->claimed);
}

TEST(CreditsBoundCommandsAndBytes) {
  Credits credits;
  const Credits::Limits limits{4, 100};
  CHECK(credits.Has(1000, limits));  // larger than the whole credit: sent when nothing is issued
  credits.Take(1000, limits);
  CHECK(!credits.Has(1, limits));
  credits.Return(1);
  for (int i = 0; i < 4; ++i) {
    CHECK(credits.Has(10, limits));
    credits.Take(10, limits);
  }
  CHECK(!credits.Has(0, limits));
  credits.Return(3);
  CHECK(credits.Has(80, limits) && !credits.Has(81, limits));
  credits.Return(2);  // an old notice changes nothing
  CHECK(credits.completed() == 3);
}

TEST(VisibleDevicesByNumberAndUuid) {
  std::vector<rgpu::wire::DeviceInfo> devices(3);
  devices[1].uuid = {0xab, 0xcd};
  devices[2].uuid = {0xab, 0xce};
  CHECK(VisibleDevices("2,0", devices) == std::vector<int>({2, 0}));
  CHECK(VisibleDevices("1,9,0", devices) == std::vector<int>({1}));
  CHECK(VisibleDevices("", devices).empty() && VisibleDevices("-1", devices).empty());
  CHECK(VisibleDevices("1,1", devices).empty());
  CHECK(VisibleDevices("GPU-abcd", devices) == std::vector<int>({1}));
  CHECK(VisibleDevices("GPU-ab", devices).empty());  // names two
  CHECK(UuidText(devices[1].uuid) == "GPU-abcd0000-0000-0000-0000-000000000000");
}

TEST(DevicesOfSeveralServersAreToldApart) {
  std::vector<rgpu::wire::DeviceInfo> devices(5);
  for (auto& device : devices) {
    device.uuid.fill(0xff);
    device.pci_bus_id = "ffff:01:00.0";
    device.attributes = {{50, 0xffff}, {33, 1}};
  }
  devices[3].pci_bus_id = devices[4].pci_bus_id = "nonsense";
  MakeDistinct(&devices);
  CHECK(devices[0].pci_bus_id == "ffff:01:00.0" && devices[0].attributes[0].value == 0xffff);
  CHECK(devices[1].pci_bus_id == "0000:01:00.0" && devices[1].attributes[0].value == 0);
  CHECK(devices[2].pci_bus_id == "0001:01:00.0" && devices[2].attributes[1].value == 1);
  CHECK(devices[4].pci_bus_id == "nonsense");
  CHECK(devices[0].uuid[15] == 0xff && devices[1].uuid[15] == 0 && devices[2].uuid[15] == 1);
  for (size_t i = 0; i < devices.size(); ++i) {
    for (size_t j = 0; j < i; ++j) CHECK(devices[i].uuid != devices[j].uuid);
  }
}

TEST(RegionsTouchRowsOnly) {
  uint8_t host[24] = {};
  for (uint8_t i = 0; i < 24; ++i) host[i] = i;
  const HostRegion region{host, 3, 3, 8};
  CHECK(region.bytes() == 9 && region.span() == 19 && !region.contiguous());
  uint8_t packed[9] = {};
  Pack(region, 0, 9, packed);
  CHECK(packed[0] == 0 && packed[2] == 2 && packed[3] == 8 && packed[8] == 18);
  const auto pieces = Pieces(region, 2, 5);
  CHECK(pieces.size() == 3 && pieces[0].iov_len == 1 && pieces[1].iov_len == 3);
  CHECK(pieces[2].iov_base == host + 16 && pieces[2].iov_len == 1);
  CHECK(region.Meets(reinterpret_cast<uint64_t>(host) + 18, 1));
  CHECK(!region.Meets(reinterpret_cast<uint64_t>(host) + 19, 1));
}

TEST(PinnedMemoryIsReused) {
  const auto bands = ReservePinnedBands();
  CHECK(!bands.empty());
  PinnedMemory memory;
  memory.Init(bands.front());
  auto* first = static_cast<uint8_t*>(memory.Allocate(10000));
  auto* second = static_cast<uint8_t*>(memory.Allocate(1));
  CHECK(first != nullptr && second == first + 12288);
  first[9999] = 1;
  memory.Free(first, 10000);
  CHECK(memory.Allocate(4096) == first && first[0] == 0);
  CHECK(memory.Allocate(bands.front().size) == nullptr);
  for (const auto& band : bands) GiveBack(band);
}

TEST(ClaimedAddressesStayFreeOfHostMemory) {
  const auto bands = ReserveDeviceBands();
  CHECK(!bands.empty());
  for (const auto& band : bands) GiveBack(band);
  const uint64_t base = bands.front().base + 5 * 4096;
  ClaimedAddresses claimed;
  claimed.Add(base, 3U << 20);
  claimed.Add(base + 100, 1);
  void* const there = reinterpret_cast<void*>(base);
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  CHECK(mmap(there, 4096, PROT_READ, flags, -1, 0) == MAP_FAILED);
  GiveBack({bands.front().base, 4U << 20});
  CHECK(mmap(there, 4096, PROT_READ, flags, -1, 0) == there);
  munmap(there, 4096);
}

TEST(LogsGoBackIntoTheProgramsBuffers) {
  char log[8] = "before";
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_OPTIMIZATION_LEVEL};
  void* values[] = {log, reinterpret_cast<void*>(8), reinterpret_cast<void*>(3)};
  JitOptions jit;
  CHECK(jit.Read(3, options, values) == CUDA_SUCCESS);
  CHECK(jit.info_bytes() == 8 && jit.encoded().size == 12);
  CHECK(jit.error_bytes() >= 1024);  // room for SayWhy, although the program gave no buffer
  jit.WriteBack(rgpu::wire::Bytes(std::string_view("0123456789")), {}, 0);
  CHECK(std::string(log) == "0123456" && values[1] == reinterpret_cast<void*>(7));
  CUjit_option wrong[] = {static_cast<CUjit_option>(999)};
  CHECK(JitOptions().Read(1, wrong, values) == CUDA_ERROR_INVALID_VALUE);
}
