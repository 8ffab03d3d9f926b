// The mask rules of mha/mask.h: what a row sees as intervals (`visible`, for the fast path) and as a predicate (`sees`, for the
// reference). The two are written independently, so that one checks the other.
#include "mha/mask.h"

#include <algorithm>

#include "core/check.h"

namespace mha {

namespace {

Index floor_div(Index a, Index b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

RowIntervals clipped(Index lo, Index hi, const MaskContext& context) {
  RowIntervals row;
  row.add({std::max<Index>(lo, 0), std::min(hi, context.kv_len)});
  return row;
}

}  // namespace

void RowIntervals::add(Interval interval) {
  if (interval.empty()) return;
  if (count > 0 && interval.lo <= items[static_cast<std::size_t>(count - 1)].hi) {
    Interval& last = items[static_cast<std::size_t>(count - 1)];
    last.hi = std::max(last.hi, interval.hi);
    return;
  }
  MHA_ASSERT(count < kMax);
  items[static_cast<std::size_t>(count++)] = interval;
}

RowIntervals intersect(const RowIntervals& a, const RowIntervals& b) {
  RowIntervals both;
  int i = 0;
  int j = 0;
  while (i < a.count && j < b.count) {
    const Interval x = a.items[static_cast<std::size_t>(i)];
    const Interval y = b.items[static_cast<std::size_t>(j)];
    both.add({std::max(x.lo, y.lo), std::min(x.hi, y.hi)});
    (x.hi < y.hi ? i : j) += 1;
  }
  return both;
}

RowIntervals Causal::visible(Index q, const MaskContext& context) const { return clipped(0, q + context.offset + 1, context); }
bool Causal::sees(Index q, Index k, const MaskContext& context) const { return k <= q + context.offset; }

RowIntervals Window::visible(Index q, const MaskContext& context) const {
  const Index position = q + context.offset;
  const Index lo = left == kUnbounded || left > position ? 0 : position - left;
  const Index hi = right == kUnbounded || right >= context.kv_len - position ? context.kv_len : position + right + 1;
  RowIntervals row = clipped(0, sinks, context);
  row.add({std::max<Index>(lo, 0), hi});
  return row;
}
bool Window::sees(Index q, Index k, const MaskContext& context) const {
  const Index ahead = k - (q + context.offset);  // > 0: the key comes after the query
  const bool inside = (left == kUnbounded || -ahead <= left) && (right == kUnbounded || ahead <= right);
  return inside || k < sinks;
}

RowIntervals Prefix::visible(Index q, const MaskContext& context) const {
  return clipped(0, std::max(length, q + context.offset + 1), context);
}
bool Prefix::sees(Index q, Index k, const MaskContext& context) const { return k < length || k <= q + context.offset; }

RowIntervals Chunk::visible(Index q, const MaskContext& context) const {
  const Index first = floor_div(q + context.offset, size);
  if (first < 0 || first > (context.kv_len - 1) / size) return {};
  const Index lo = first * size;
  return clipped(lo, size > context.kv_len - lo ? context.kv_len : lo + size, context);
}
bool Chunk::sees(Index q, Index k, const MaskContext& context) const {
  const Index position = q + context.offset;
  return position >= 0 && position / size == k / size;
}

RowIntervals Segments::visible(Index q, const MaskContext& context) const {
  const auto next = std::upper_bound(starts.begin(), starts.end(), q + context.offset);
  if (next == starts.begin()) return {};  // before the first position
  return clipped(*std::prev(next), next == starts.end() ? context.kv_len : *next, context);
}
bool Segments::sees(Index q, Index k, const MaskContext& context) const {
  const auto segment_of = [&](Index position) {
    Index segment = -1;
    for (const Index start : starts) segment += start <= position ? 1 : 0;
    return segment;
  };
  const Index segment = segment_of(q + context.offset);
  return segment >= 0 && segment == segment_of(k);
}

namespace {

template <class... Fn>
struct Overload : Fn... {
  using Fn::operator()...;
};
template <class... Fn>
Overload(Fn...) -> Overload<Fn...>;  // clang below 17 does not deduce an aggregate's arguments

void check(const Rule& rule) {
  std::visit(
      Overload{
          [](const Causal&) {},
          [](const Window& w) {
            MHA_CHECK(ShapeError, w.left >= kUnbounded && w.right >= kUnbounded, "mask: window's left is ", w.left, " and right is ",
                      w.right, "; a distance is 0 or more, or -1 for no limit");
            MHA_CHECK(ShapeError, w.sinks >= 0, "mask: window's sinks is ", w.sinks, ", must be at least 0");
          },
          [](const Prefix& p) { MHA_CHECK(ShapeError, p.length >= 0, "mask: prefix's length is ", p.length, ", must be at least 0"); },
          [](const Chunk& c) { MHA_CHECK(ShapeError, c.size >= 1, "mask: chunk's size is ", c.size, ", must be at least 1"); },
          [](const Segments& s) {
            MHA_CHECK(ShapeError, !s.starts.empty() && s.starts.front() == 0, "mask: segments' first start is ",
                      s.starts.empty() ? "absent" : std::to_string(s.starts.front()), ", must be 0");
            for (std::size_t i = 1; i < s.starts.size(); ++i) {
              MHA_CHECK(ShapeError, s.starts[i - 1] < s.starts[i], "mask: segments' starts must ascend, start ", i, " is ", s.starts[i],
                        " after ", s.starts[i - 1]);
            }
          },
      },
      rule);
}

bool has_sinks(const Rule& rule) {
  const auto* window_rule = std::get_if<Window>(&rule);
  return window_rule != nullptr && window_rule->sinks > 0;
}

}  // namespace

Mask::Mask(Rule rule) {
  check(rule);
  rules_.push_back(std::move(rule));
}

Mask operator&(const Mask& a, const Mask& b) {
  Mask both = a;
  both.rules_.insert(both.rules_.end(), b.rules_.begin(), b.rules_.end());
  // Only a window with sinks has two intervals, and intersecting unions of m and n intervals gives at most m + n - 1.
  const auto windows = std::count_if(both.rules_.begin(), both.rules_.end(), has_sinks);
  MHA_CHECK(ShapeError, windows < RowIntervals::kMax, "mask: ", windows, " windows with sinks, at most ", RowIntervals::kMax - 1,
            " can be combined");
  return both;
}

RowIntervals Mask::visible(Index q, const MaskContext& context) const {
  RowIntervals row;
  if (rules_.empty()) row.add({0, context.kv_len});
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    const RowIntervals seen = std::visit([&](const auto& rule) { return rule.visible(q, context); }, rules_[i]);
    row = i == 0 ? seen : intersect(row, seen);
  }
  return row;
}

bool Mask::sees(Index q, Index k, const MaskContext& context) const {
  return std::all_of(rules_.begin(), rules_.end(),
                     [&](const Rule& rule) { return std::visit([&](const auto& r) { return r.sees(q, k, context); }, rule); });
}

Mask causal() { return Mask(Causal{}); }
Mask window(Index left, Index right, Index sinks) { return Mask(Window{.left = left, .right = right, .sinks = sinks}); }
Mask prefix(Index length) { return Mask(Prefix{.length = length}); }
Mask chunk(Index size) { return Mask(Chunk{.size = size}); }
Mask segments(std::vector<Index> starts) { return Mask(Segments{.starts = std::move(starts)}); }

std::string to_string(const Mask& mask) {
  std::string text;
  for (const Rule& rule : mask.rules()) {
    text += text.empty() ? "" : " & ";
    text +=
        std::visit(Overload{
                       [](const Causal&) { return std::string("causal"); },
                       [](const Window& w) { return core::join("window(left=", w.left, ", right=", w.right, ", sinks=", w.sinks, ")"); },
                       [](const Prefix& p) { return core::join("prefix(", p.length, ")"); },
                       [](const Chunk& c) { return core::join("chunk(", c.size, ")"); },
                       [](const Segments& s) { return core::join("segments(", s.starts.size(), " starts)"); },
                   },
                   rule);
  }
  return text.empty() ? "none" : text;
}

}  // namespace mha
