// Masks: a mask is an intersection of rules, a rule says which keys a query row may see. Masks are data, never template parameters.
// Adding a rule: one struct here with `visible` and `sees` (written independently of each other: the second is the first's oracle),
// its name in `Rule`, its cases in tests/support/cases.h.
//
// Positions: query row q sits at key position p = q + offset, where offset comes from the alignment (attention.h, Align).
#pragma once

#include <array>
#include <string>
#include <variant>
#include <vector>

#include "mha/tensor.h"

namespace mha {

/// A distance without bound (Window).
inline constexpr Index kUnbounded = -1;

struct MaskContext {
  Index q_len = 0;
  Index kv_len = 0;
  Index offset = 0;  // query row q sits at key position q + offset
};

/// Keys lo <= k < hi.
struct Interval {
  Index lo = 0;
  Index hi = 0;
  bool empty() const { return hi <= lo; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

/// What one row sees: at most four disjoint, non-empty, ascending intervals.
struct RowIntervals {
  static constexpr int kMax = 4;
  std::array<Interval, kMax> items{};
  int count = 0;

  void add(Interval interval);  // ascending order is the caller's duty; touching intervals are joined, empty ones dropped
};
RowIntervals intersect(const RowIntervals& a, const RowIntervals& b);

/// Key position <= query position.
struct Causal {
  RowIntervals visible(Index q, const MaskContext& context) const;
  bool sees(Index q, Index k, const MaskContext& context) const;
};

/// Keys from `left` before to `right` after the query's position, both inclusive, kUnbounded = no limit. The first `sinks` keys stay
/// visible to every row. A model's "window W" counts the token itself: left = W - 1.
struct Window {
  Index left = kUnbounded;
  Index right = 0;
  Index sinks = 0;
  RowIntervals visible(Index q, const MaskContext& context) const;
  bool sees(Index q, Index k, const MaskContext& context) const;
};

/// The first `length` keys are visible to every row, the others causally (prefix language model).
struct Prefix {
  Index length = 0;
  RowIntervals visible(Index q, const MaskContext& context) const;
  bool sees(Index q, Index k, const MaskContext& context) const;
};

/// Only keys of the query's own chunk of `size` positions, in both directions.
struct Chunk {
  Index size = 1;
  RowIntervals visible(Index q, const MaskContext& context) const;
  bool sees(Index q, Index k, const MaskContext& context) const;
};

/// Only keys of the query's own segment (packed documents). `starts` holds each segment's first position: 0, then strictly ascending.
struct Segments {
  std::vector<Index> starts;
  RowIntervals visible(Index q, const MaskContext& context) const;
  bool sees(Index q, Index k, const MaskContext& context) const;
};

using Rule = std::variant<Causal, Window, Prefix, Chunk, Segments>;

/// An intersection of rules; the empty mask sees everything.
class Mask {
 public:
  Mask() = default;
  /// Throws ShapeError for a rule that cannot be (negative sizes, unsorted starts, ...).
  Mask(Rule rule);  // NOLINT: a rule is a mask
  /// Throws ShapeError where a row could see more than RowIntervals::kMax intervals (more than three windows with sinks).
  friend Mask operator&(const Mask& a, const Mask& b);

  bool empty() const { return rules_.empty(); }
  const std::vector<Rule>& rules() const { return rules_; }
  RowIntervals visible(Index q, const MaskContext& context) const;
  bool sees(Index q, Index k, const MaskContext& context) const;

 private:
  std::vector<Rule> rules_;
};

Mask causal();
Mask window(Index left, Index right = 0, Index sinks = 0);
Mask prefix(Index length);
Mask chunk(Index size);
Mask segments(std::vector<Index> starts);

/// "causal & window(left=4, right=0, sinks=2)"; "none" for the empty mask.
std::string to_string(const Mask& mask);

}  // namespace mha
