// Predicts how long device work takes, and learns from measurements.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace rgpu::exec {

// Device time per unit of one kind of work (kernels: per launch; copies and sets: per byte),
// corrected by measurements.
struct Estimate {
  explicit Estimate(double first_guess_ns) : ns_per_unit(first_guess_ns) {}
  // `least`: fewer units are predicted to take as long as this many. `trust`: the first measurement
  // may change the first guess by at most this factor.
  Estimate(double first_guess_ns, uint64_t least, double trust)
      : ns_per_unit(first_guess_ns), least_units(least), most_first_factor(trust) {}

  // The number of units that `units` count as.
  uint64_t Counted(uint64_t units) const { return std::max(units, least_units); }
  uint64_t Predict(uint64_t units) const {
    return static_cast<uint64_t>(ns_per_unit * static_cast<double>(Counted(units)));
  }
  // Corrects the estimate after work took `factor` times the time predicted now. The first
  // measurement replaces the guess. Later ones move the estimate by a bounded part, because a
  // marker that is noticed late makes the next one look short.
  void Correct(double factor) {
    if (measured) {
      ns_per_unit *= 0.5 + 0.5 * std::clamp(factor, 0.25, 4.0);
    } else {
      ns_per_unit *= std::clamp(factor, 1 / most_first_factor, most_first_factor);
    }
    ns_per_unit = std::clamp(ns_per_unit, 1e-4, 60e9);
    measured = true;
  }

  double ns_per_unit;
  const uint64_t least_units = 1;
  const double most_first_factor = 1e12;
  bool measured = false;
};

// The predicted device work of one or more commands.
class Load {
 public:
  // Adds one command of `units`. Returns its predicted time in ns.
  uint64_t Add(const std::shared_ptr<Estimate>& kind, uint64_t units) {
    const uint64_t ns = std::max<uint64_t>(kind->Predict(units), 1);
    ns_ += ns;
    ++pieces_;
    if (!Remember(kind, units)) other_ns_ += ns;
    return ns;
  }
  void Add(const Load& other) {
    ns_ += other.ns_;
    pieces_ += other.pieces_;
    other_ns_ += other.other_ns_;
    for (const Part& part : other.parts_) {
      if (part.kind == nullptr || Remember(part.kind, part.units)) continue;
      other_ns_ += part.kind->Predict(part.units);
    }
  }
  // Learns that this work took `ns`. The factor compares with a prediction made now, not with the
  // stored one. Otherwise several loads predicted by the same wrong estimate would each correct it
  // in full.
  void Measured(uint64_t ns) const {
    uint64_t predicted = other_ns_;
    for (const Part& part : parts_) {
      if (part.kind != nullptr) predicted += std::max<uint64_t>(part.kind->Predict(part.units), 1);
    }
    const double factor = static_cast<double>(ns) / static_cast<double>(predicted);
    for (const Part& part : parts_) {
      if (part.kind != nullptr) part.kind->Correct(factor);
    }
  }

  uint64_t ns() const { return ns_; }
  uint32_t pieces() const { return pieces_; }
  bool empty() const { return pieces_ == 0; }
  bool known() const {
    return std::ranges::all_of(
        parts_, [](const Part& part) { return part.kind == nullptr || part.kind->measured; });
  }

 private:
  struct Part {
    std::shared_ptr<Estimate> kind;
    uint64_t units = 0;
  };

  // Returns false if there is no room for one more kind.
  bool Remember(const std::shared_ptr<Estimate>& kind, uint64_t units) {
    for (Part& part : parts_) {
      if (part.kind == nullptr) part.kind = kind;
      if (part.kind != kind) continue;
      part.units += kind->Counted(units);
      return true;
    }
    return false;
  }

  uint64_t ns_ = 0;
  uint64_t other_ns_ = 0;  // of kinds that did not fit into parts_ and so are not corrected
  uint32_t pieces_ = 0;
  std::array<Part, 4> parts_;
};

}  // namespace rgpu::exec
