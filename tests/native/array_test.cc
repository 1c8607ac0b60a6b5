// The shape of arrays, and how boxes are checked and divided.
#include <random>

#include "rgpu_common/native/base/box_copy.h"
#include "rgpu_server/executor/rows.h"
#include "tests/native/testing.h"

namespace rgpu::exec {
namespace {

CUDA_ARRAY3D_DESCRIPTOR Shape(size_t width, size_t height, size_t depth, unsigned flags = 0) {
  return {width, height, depth, CU_AD_FORMAT_FLOAT, 1, flags};
}

TEST(arrays, parts_do_not_overlap_and_hold_their_rows) {
  std::mt19937_64 random(1);
  for (int turn = 0; turn < 300; ++turn) {
    const auto shape = Shape(1 + random() % 300, 1 + random() % 50, random() % 20);
    const auto levels = static_cast<uint32_t>(1 + random() % base::MostLevels(shape));
    base::ArrayLayout layout;
    CHECK(base::LayOut(shape, levels, &layout));
    CHECK_EQ(layout.count, levels);
    uint64_t end = 0;
    for (uint32_t i = 0; i < levels; ++i) {
      const base::ArrayPart& part = layout.parts[i];
      base::ArrayExtent extent;
      CHECK(base::ExtentOf(base::LevelOf(shape, i), &extent));
      CHECK(part.offset >= end && part.offset % 512 == 0);
      CHECK(part.row_pitch >= extent.row_bytes);
      CHECK_EQ(part.slice_pitch, part.row_pitch * extent.rows);
      end = part.offset + part.slice_pitch * extent.slices;
    }
    CHECK_EQ(layout.bytes, end);
  }
}

TEST(arrays, sizes_that_overflow_cannot_be_laid_out) {
  base::ArrayLayout layout;
  CHECK(!base::LayOut(Shape(SIZE_MAX, 0, 0), 1, &layout));
  CHECK(!base::LayOut(Shape(16, SIZE_MAX, 0), 1, &layout));
  CHECK(!base::LayOut(Shape(16, 16, SIZE_MAX), 1, &layout));
  CHECK(!base::LayOut(Shape(1U << 20, 1U << 20, 1U << 20), 1, &layout));
  CHECK(!base::LayOut(Shape(16, 16, 0), base::kMaxArrayLevels + 1, &layout));
  CHECK(base::CheckArray(Shape(SIZE_MAX, 0, 0), 64) != CUDA_SUCCESS);
}

TEST(arrays, a_box_lies_inside_or_is_refused) {
  base::ArrayExtent extent;
  CHECK(base::ExtentOf(Shape(16, 8, 4), &extent));
  CHECK(base::Holds(extent, {0, 0, 0, 64, 8, 4}));
  CHECK(base::Holds(extent, {60, 7, 3, 4, 1, 1}));
  CHECK(!base::Holds(extent, {60, 7, 3, 8, 1, 1}));
  CHECK(!base::Holds(extent, {2, 0, 0, 4, 1, 1}));
  CHECK(!base::Holds(extent, {UINT64_MAX - 3, 0, 0, 4, 1, 1}));
  CHECK(!base::Holds(extent, {0, UINT64_MAX, 0, 4, 1, 1}));
  CHECK(!base::Holds(extent, {0, 0, 1, 4, 1, UINT64_MAX}));
}

TEST(arrays, the_sides_of_a_box) {
  CUDA_MEMCPY3D copy{};
  base::BoxCopy box;
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = 1000;
  copy.srcXInBytes = 3;
  copy.srcY = 2;
  copy.srcZ = 1;
  copy.srcPitch = 100;
  copy.srcHeight = 10;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.WidthInBytes = 50;
  copy.Height = 4;
  copy.Depth = 2;
  CHECK_EQ(base::BoxOf(copy, &box), CUDA_SUCCESS);
  CHECK_EQ(box.from.address, 1000U + (1 * 10 + 2) * 100 + 3);
  uint64_t bytes = 0;
  CHECK(box.from.Span(50, 4, 2, &bytes));
  CHECK_EQ(bytes, (10U + 3) * 100 + 50);
  copy.srcDevice = UINT64_MAX;
  CHECK_EQ(base::BoxOf(copy, &box), CUDA_ERROR_INVALID_VALUE);
  copy.srcDevice = 1000;
  copy.srcZ = SIZE_MAX / 10;
  CHECK_EQ(base::BoxOf(copy, &box), CUDA_ERROR_INVALID_VALUE);
}

// The packed bytes and the places of all portions, in order, are those of the rows.
TEST(arrays, portions_cover_every_byte_once_and_in_order) {
  std::mt19937_64 random(2);
  for (int turn = 0; turn < 400; ++turn) {
    Rows rows;
    rows.width = 1 + random() % (turn % 4 == 0 ? 2 * wire::kPieceBytes : 3000);
    rows.height = 1 + random() % 40;
    rows.depth = 1 + random() % 30;
    rows.pitch = rows.width + random() % 100;
    rows.rows = rows.height + random() % 5;
    if (turn % 2 == 0) {
      rows.address = 1000;
    } else {
      rows.place = {reinterpret_cast<CUarray>(&rows), 3, 4, 5};
    }
    uint64_t total = 0;
    CHECK(rows.Total(&total));
    for (uint64_t offset = 0; offset < total;) {
      const Portion portion = PortionAt(rows, offset);
      CHECK_EQ(portion.offset, offset);
      CHECK(portion.bytes() > 0 && portion.bytes() <= wire::kPieceBytes);
      const uint64_t row = offset / rows.width;
      const uint64_t x = offset % rows.width;
      const uint64_t y = row % rows.height;
      const uint64_t z = row / rows.height;
      CHECK(y + portion.height <= rows.height);
      CHECK(z + portion.depth <= rows.depth);
      CHECK(portion.height == 1 || portion.width == rows.width);
      CHECK(portion.depth == 1 || portion.height == rows.height);
      // Exactly one of the two says where the portion begins: the driver adds them.
      const bool linear = rows.linear();
      CHECK_EQ(portion.address, linear ? 1000 + (z * rows.rows + y) * rows.pitch + x : 0);
      CHECK_EQ(portion.place.x, linear ? 0 : 3 + x);
      CHECK_EQ(portion.place.y, linear ? 0 : 4 + y);
      CHECK_EQ(portion.place.z, linear ? 0 : 5 + z);
      offset += portion.bytes();
    }
  }
}

}  // namespace
}  // namespace rgpu::exec
