// Memory credit: the client of a session that allocates often places allocations by itself, in a
// window of addresses, and the worker gives them memory when it reads the command. What the client
// may use is charged before. docs/adr/0018-memory-credit.md says why.
//
// All functions are called with the executor's lock held.
#pragma once

#include <cstdint>

#include "gen/cuda_abi.gen.h"
#include "rgpu_server/executor/credit_book.h"
#include "rgpu_server/executor/ledger.h"

namespace rgpu::exec {

class Executor;

class MemoryCredit {
 public:
  MemoryCredit(Executor& executor, Ledger& ledger) : executor_(executor), ledger_(ledger) {}

  // Grants credit, so that the client has up to `wish` bytes: at most an eighth of the lease, and a
  // quarter of what is left of it.
  void Grant(uint64_t wish);
  // The client has returned `total` bytes so far.
  void Returned(uint64_t total);
  // Takes the charge of [base, base + bytes) from the credit. 0: the client may not use that.
  uint64_t Cut(uint64_t base, uint64_t bytes);
  // Gives memory to what was cut, in the current context.
  CUresult Back(uint64_t base, uint64_t bytes);
  // What was cut gets no memory: its charge goes.
  void Forfeit(uint64_t base, uint64_t charged);

  // Backed memory of `charged` bytes is freed by command `seq`, and later the device has freed it.
  // It becomes credit again, or goes back to the lease. The caller of Freed holds a Change.
  void Freeing(uint64_t seq) { book_.Freeing(seq); }
  void Freed(uint64_t seq, uint64_t base, uint64_t charged);
  // A load is measured no more (MemoryAccount::Measure). Until then nothing was given back to the
  // device.
  void Measured();
  // The context of this backed memory is destroyed, and its charge goes with it.
  void Drop(uint64_t base) { book_.Drop(base); }

  // Asks the client for what it has not used, because the lease has no room. For a while nothing is
  // granted.
  void Recall();
  uint64_t uncut() const { return book_.uncut(); }
  const CreditBook& book() const { return book_; }

  // Appends the notice for the client if something has changed for it.
  void Tell();

 private:
  bool Open();
  void Watch(uint32_t seen);
  void Show() { ledger_.SetCredit(book_.uncut()); }
  bool Charge(uint64_t bytes);
  void GiveBack(uint64_t bytes);
  bool short_of_memory() const;

  Executor& executor_;
  Ledger& ledger_;
  CreditBook book_;
  uint64_t target_ = 0;  // freed memory becomes credit up to so much
  uint64_t short_until_ns_ = 0;
  uint64_t left_aside_ = 0;  // set aside on the device, and to be given back
  bool changed_ = false;     // the client has not been told
  bool wanted_ = false;      // the client has not been asked
};

}  // namespace rgpu::exec
