// What the session is charged for device memory, and how the charges follow what the driver does.
//
// The ledger holds the numbers in the lease's page. This class decides when to wait for memory that
// is being freed, when to trim pools, and when nothing may change because a load is measured.
// docs/explanation/quotas-memory.md has the table of all charges.
//
// All functions are called with the executor's lock held.
#pragma once

#include <cstdint>
#include <string>

#include "rgpu_server/executor/granules.h"
#include "rgpu_server/executor/ledger.h"
#include "rgpu_server/executor/memory_credit.h"
#include "rgpu_server/executor/objects.h"
#include "rgpu_server/executor/shortage.h"

namespace rgpu::exec {

class Executor;

class MemoryAccount {
 public:
  MemoryAccount(Executor& executor, Ledger& ledger);

  // Charges the lease. If the lease is full, first waits for frees under way and for credit that
  // this program or another of the lease has not used. May release the lock.
  // CUDA_ERROR_OUT_OF_MEMORY: refused, and counted as a refusal.
  CUresult Charge(uint64_t bytes);
  // The same without waiting for the device; pools, and programs with credit, give back what they
  // do not use. May release the lock for that.
  CUresult ChargeNow(uint64_t bytes);
  // Tell the client, once per session, that its lease has no room, that the device has none
  // although the lease has, or that the pool has reached the maximum that the program gave it.
  void LeaseIsFull(uint64_t bytes);
  void DeviceIsFull(uint64_t bytes);
  void PoolIsFull(const Pool& pool, uint64_t bytes);
  void NameLease(const std::string& name) { shortage_.Name(name); }
  // Sets the charges of all pools to what the driver reports. ReconcilePools first waits briefly
  // for pending frees and trims the pools.
  void ReconcilePools();
  void ReconcilePool(Pool& pool);
  // Memory was freed to the pool in a stream.
  void CountFree(Pool& pool) { pool.freed = ++frees_; }
  uint64_t frees() const { return frees_; }
  // Trims pools to their release threshold after the client has waited, as the driver would at a
  // synchronization: the worker polls, and waits in its own way. `waited` is complete (null: it was
  // from the start). No free up to the number `over` is pending any more.
  void TrimAfterWait(const Point* waited, uint64_t over = 0);
  void TrimToThreshold(Pool& pool, uint64_t over = 0);
  // A plain allocation goes with its context. Returns its charge.
  uint64_t Forget(uint64_t base, const Range& range);
  Granules& granules() { return granules_; }
  MemoryCredit& credit() { return credit_; }
  // The charge for the device-side heap, which all contexts of the emulated device share. It stays
  // when a context goes.
  uint64_t& heap_charged() { return heap_charged_; }
  // How many threads the device can run at once; local memory is provided for all of them.
  uint64_t resident_threads();

  // A Measure compares the device's free memory before and after a load. No other thread may
  // allocate or free meanwhile, so each allocation or free holds a Change, and the two exclude each
  // other. Both constructors may release the lock.
  class Change {
   public:
    explicit Change(MemoryAccount& memory);
    ~Change();
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

   private:
    MemoryAccount& memory_;
  };
  class Measure {
   public:
    explicit Measure(MemoryAccount& memory);
    ~Measure();
    Measure(const Measure&) = delete;
    Measure& operator=(const Measure&) = delete;

   private:
    MemoryAccount& memory_;
  };
  bool measuring() const { return measuring_; }

 private:
  uint64_t Patience(bool frees) const;
  bool ChargeLater(uint64_t bytes, bool frees);
  void RecallCredit();
  void WaitForPoolFrees();
  void TrimPools();
  template <typename Condition>
  void WaitUntil(Condition condition);

  Executor& executor_;
  Ledger& ledger_;
  Shortage shortage_;
  Granules granules_;
  MemoryCredit credit_;
  uint64_t heap_charged_ = 0;
  uint64_t resident_threads_ = 0;
  uint32_t changing_ = 0;
  bool measuring_ = false;
  bool trim_due_ = false;  // a wait ended while a load was measured
  // Of all pools. A worker process serves one session.
  static inline uint64_t frees_ = 0;
};

}  // namespace rgpu::exec
