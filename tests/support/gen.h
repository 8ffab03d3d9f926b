// rapidcheck generators of problems: small and awkward sizes, odd head_dims, groups, layouts, masks, alignment. A failing property prints
// its seed; rerun it with RC_PARAMS="reproduce=..." as printed.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>
#include <utility>
#include <vector>

#include "support/problem.h"

namespace mha::test {

/// Runs a property as part of the current gtest test. Inside use RC_ASSERT.
template <class Property>
void check(const std::string& what, Property&& property) {
  EXPECT_TRUE(rc::check(what, std::forward<Property>(property))) << "the counter-example and its seed stand above: " << what;
}

namespace gen {

/// 0 to 70, mostly 1, primes, and one beside a multiple of the lanes.
inline rc::Gen<Index> length(Index min = 0) {
  using rc::gen::element;
  using rc::gen::inRange;
  auto awkward = rc::gen::suchThat(element<Index>(0, 1, 1, 2, 3, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 47, 48, 49, 61, 63, 64, 65, 67),
                                   [min](Index n) { return n >= min; });
  return rc::gen::oneOf(awkward, inRange<Index>(min, 71));
}

inline rc::Gen<Index> head_dim() {
  return rc::gen::oneOf(rc::gen::element<Index>(1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 33, 64, 67, 97, 127, 128, 130),
                        rc::gen::inRange<Index>(1, 131));
}

inline Segments some_segments() {
  Segments rule;
  Index start = 0;
  const int count = *rc::gen::inRange(1, 5);
  for (int i = 0; i < count; ++i) {
    rule.starts.push_back(start);
    start += *rc::gen::inRange<Index>(1, 30);
  }
  return rule;
}

/// Distance, sometimes without bound.
inline Index some_reach() { return *rc::gen::oneOf(rc::gen::just(kUnbounded), rc::gen::inRange<Index>(0, 40)); }

inline Rule some_rule() {
  switch (*rc::gen::inRange(0, 5)) {
    case 0:
      return Causal{};
    case 1:
      return Window{some_reach(), some_reach(), *rc::gen::element<Index>(0, 0, 1, 4, 20)};
    case 2:
      return Prefix{*rc::gen::inRange<Index>(0, 50)};
    case 3:
      return Chunk{*rc::gen::inRange<Index>(1, 40)};
    default:
      return some_segments();
  }
}

/// An intersection of up to three rules.
inline rc::Gen<Mask> mask() {
  return rc::gen::exec([] {
    Mask mask;
    const int count = *rc::gen::inRange(0, 4);
    for (int i = 0; i < count; ++i) mask = mask & Mask(some_rule());
    return mask;
  });
}

inline Broadcast some_broadcast() {
  return {*rc::gen::arbitrary<bool>(), *rc::gen::arbitrary<bool>(), *rc::gen::arbitrary<bool>(), *rc::gen::arbitrary<bool>()};
}

inline rc::Gen<Problem> problem(std::vector<DType> dtypes = {DType::F32}) {
  return rc::gen::exec([dtypes] {
    Problem p;
    p.batch = *rc::gen::inRange<Index>(1, 4);
    p.q_len = *length();
    p.kv_len = *rc::gen::oneOf(rc::gen::just(p.q_len), length());
    p.kv_heads = *rc::gen::inRange<Index>(1, 4);
    p.group = *rc::gen::inRange<Index>(1, 6);
    p.head_dim = *head_dim();
    p.value_dim = *rc::gen::oneOf(rc::gen::just(p.head_dim), head_dim());
    p.dtype = *rc::gen::elementOf(dtypes);
    p.layout = kLayouts[*rc::gen::inRange<std::size_t>(0, std::size(kLayouts))];
    p.mask = *mask();
    p.align = *rc::gen::element(Align::TopLeft, Align::BottomRight);
    if (*rc::gen::inRange(0, 3) == 0) {
      p.bias.content = *rc::gen::element(BiasData::Content::Finite, BiasData::Content::SomeHidden);
      p.bias.broadcast = some_broadcast();
    }
    if (*rc::gen::inRange(0, 6) == 0) p.bias = {BiasData::Content::Alibi, {}, DType::F32};
    if (*rc::gen::inRange(0, 6) == 0) p.softcap = *rc::gen::element(0.5F, 5.0F, 50.0F);
    if (*rc::gen::inRange(0, 6) == 0) p.first_sink = *rc::gen::element(-2.0F, 0.0F, 6.0F);
    if (*rc::gen::inRange(0, 3) == 0) p.allowed = {true, some_broadcast(), *rc::gen::element(0.05, 0.5, 0.95)};
    if (*rc::gen::inRange(0, 3) == 0) {
      for (Index b = 0; b < p.batch; ++b) p.kv_lengths.push_back(*rc::gen::inRange<Index>(0, p.kv_len + 1));
    }
    if (*rc::gen::inRange(0, 4) == 0) p.scale = *rc::gen::element(0.0F, 1.0F, 0.25F, -0.3F);
    if (*rc::gen::inRange(0, 6) == 0) p.dropout = {*rc::gen::element(0.1F, 0.5F), 17};
    p.seed = *rc::gen::inRange<std::uint64_t>(1, 1000);
    return p;
  });
}

/// Any rectangle of any head's table, an empty one too. For use inside a property.
inline WeightsRegion region(const Problem& problem) {
  WeightsRegion region;
  region.batch = *rc::gen::inRange<Index>(0, problem.batch);
  region.head = *rc::gen::inRange<Index>(0, problem.heads());
  region.queries.lo = *rc::gen::inRange<Index>(0, problem.q_len + 1);
  region.queries.hi = *rc::gen::inRange<Index>(region.queries.lo, problem.q_len + 1);
  region.keys.lo = *rc::gen::inRange<Index>(0, problem.kv_len + 1);
  region.keys.hi = *rc::gen::inRange<Index>(region.keys.lo, problem.kv_len + 1);
  return region;
}

}  // namespace gen
}  // namespace mha::test
