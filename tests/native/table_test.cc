// Objects by the ids of clients that choose them so that look-ups take long.
#include "rgpu_server/executor/table.h"

#include <algorithm>

#include "tests/native/testing.h"

namespace rgpu::exec {
namespace {

TEST(table, ids_that_a_client_chooses_do_not_gather_in_one_bucket) {
  Table<int>::Objects objects;
  // The number of buckets that so many ids get. Unsalted, all of the ids leave the same remainder.
  objects.reserve(20'000);
  const size_t buckets = objects.bucket_count();
  for (size_t i = 1; i <= 20'000; ++i) objects[kFirstHandle + i * buckets] = nullptr;
  CHECK_EQ(objects.bucket_count(), buckets);
  size_t most = 0;
  for (size_t i = 0; i < buckets; ++i) most = std::max(most, objects.bucket_size(i));
  CHECK(most < 100);
}

TEST(table, ids_that_differ_in_one_half_alone_do_not_gather_either) {
  for (const int shift : {0, 32, 44}) {
    Table<int>::Objects objects;
    for (uint64_t i = 1; i <= 20'000; ++i) objects[i << shift] = nullptr;
    size_t most = 0;
    for (size_t i = 0; i < objects.bucket_count(); ++i) {
      most = std::max(most, objects.bucket_size(i));
    }
    CHECK(most < 100);
  }
}

TEST(table, an_id_is_found_until_it_is_taken) {
  Table<int> table;
  table.Add(7, std::make_shared<int>(70));
  int* found = nullptr;
  CHECK_EQ(table.Find(7, &found), CUDA_SUCCESS);
  CHECK_EQ(*found, 70);
  CHECK_EQ(table.CanAdd(7), CUDA_ERROR_INVALID_HANDLE);
  std::shared_ptr<int> taken;
  CHECK_EQ(table.Take(7, &taken), CUDA_SUCCESS);
  CHECK_EQ(table.Find(7, &found), CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace
}  // namespace rgpu::exec
