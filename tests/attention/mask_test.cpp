// Mask rules: `visible` against `sees`, exhaustively on small sizes; the picture of each rule by hand; what is refused.
#include "mha/mask.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "mha/error.h"
#include "support/cases.h"
#include "support/errors.h"
#include "support/gen.h"

namespace mha::test {
namespace {

/// Whether the intervals are as promised (ascending, disjoint, not touching, within the keys) and hold exactly the keys that `sees` says.
std::string disagreement(const Mask& mask, Index q, const MaskContext& context) {
  const RowIntervals row = mask.visible(q, context);
  std::vector<bool> seen(static_cast<std::size_t>(context.kv_len), false);
  Index end = -1;
  for (int i = 0; i < row.count; ++i) {
    const Interval part = row.items[static_cast<std::size_t>(i)];
    if (part.empty() || part.lo <= end || part.hi > context.kv_len) return "intervals are not ascending, disjoint and inside";
    end = part.hi;
    for (Index k = part.lo; k < part.hi; ++k) seen[static_cast<std::size_t>(k)] = true;
  }
  for (Index k = 0; k < context.kv_len; ++k) {
    if (seen[static_cast<std::size_t>(k)] != mask.sees(q, k, context)) return "key " + std::to_string(k) + ", query " + std::to_string(q);
  }
  return "";
}

TEST(MaskTest, VisibleAgreesWithSeesOnEveryExample) {
  for (const Mask& mask : example_masks()) {
    for (const Index q_len : {1, 2, 9, 40}) {
      for (const Index kv_len : {0, 1, 2, 7, 8, 40}) {
        for (const Index offset : {Index{0}, kv_len - q_len, Index{-3}, Index{5}}) {
          const MaskContext context = {q_len, kv_len, offset};
          for (Index q = 0; q < q_len; ++q)
            ASSERT_EQ(disagreement(mask, q, context), "") << to_string(mask) << " kv_len " << kv_len << " offset " << offset;
        }
      }
    }
  }
}

TEST(MaskTest, VisibleAgreesWithSeesOnRandomCompositions) {
  check("intervals hold exactly the keys the predicate sees", [] {
    const Mask mask = *gen::mask();
    const Index kv_len = *rc::gen::inRange<Index>(0, 60);
    const Index q_len = *rc::gen::inRange<Index>(1, 60);
    const Index offset = *rc::gen::element(Index{0}, kv_len - q_len, *rc::gen::inRange<Index>(-70, 70));
    for (Index q = 0; q < q_len; ++q) RC_ASSERT(disagreement(mask, q, {q_len, kv_len, offset}) == "");
  });
}

TEST(MaskTest, CompositionIsIntersection) {
  check("a & b sees what both see", [] {
    const Mask a = *gen::mask();
    const Rule rule = gen::some_rule();
    const MaskContext context = {20, 25, 3};
    const Mask b(rule);
    if (a.rules().size() == 3) return;  // three windows with sinks and one more are refused
    const Mask both = a & b;
    for (Index q = 0; q < 20; ++q) {
      for (Index k = 0; k < 25; ++k) RC_ASSERT(both.sees(q, k, context) == (a.sees(q, k, context) && b.sees(q, k, context)));
    }
  });
}

/// Rows of the picture, x = visible.
std::vector<std::string> picture(const Mask& mask, Index q_len, Index kv_len, Index offset) {
  std::vector<std::string> rows;
  for (Index q = 0; q < q_len; ++q) {
    std::string row(static_cast<std::size_t>(kv_len), '.');
    const RowIntervals seen = mask.visible(q, {q_len, kv_len, offset});
    for (int i = 0; i < seen.count; ++i) {
      for (Index k = seen.items[static_cast<std::size_t>(i)].lo; k < seen.items[static_cast<std::size_t>(i)].hi; ++k)
        row[static_cast<std::size_t>(k)] = 'x';
    }
    rows.push_back(row);
  }
  return rows;
}
using Picture = std::vector<std::string>;

TEST(MaskTest, PicturesDrawnByHand) {
  EXPECT_EQ(picture({}, 2, 3, 0), (Picture{"xxx", "xxx"}));
  EXPECT_EQ(picture(causal(), 3, 3, 0), (Picture{"x..", "xx.", "xxx"}));
  EXPECT_EQ(picture(causal(), 2, 5, 3), (Picture{"xxxx.", "xxxxx"}));
  EXPECT_EQ(picture(causal(), 5, 2, -3), (Picture{"..", "..", "..", "x.", "xx"}));
  EXPECT_EQ(picture(window(1), 4, 4, 0), (Picture{"x...", "xx..", ".xx.", "..xx"}));
  EXPECT_EQ(picture(window(1, 1), 4, 4, 0), (Picture{"xx..", "xxx.", ".xxx", "..xx"}));
  EXPECT_EQ(picture(window(kUnbounded, 1), 3, 4, 0), (Picture{"xx..", "xxx.", "xxxx"}));
  EXPECT_EQ(picture(window(0, kUnbounded), 3, 4, 0), (Picture{"xxxx", ".xxx", "..xx"}));
  EXPECT_EQ(picture(window(0, 0, 1), 4, 4, 0), (Picture{"x...", "xx..", "x.x.", "x..x"}));
  EXPECT_EQ(picture(window(1, 0, 2), 6, 6, 0), (Picture{"xx....", "xx....", "xxx...", "xxxx..", "xx.xx.", "xx..xx"}));
  EXPECT_EQ(picture(prefix(2), 4, 4, 0), (Picture{"xx..", "xx..", "xxx.", "xxxx"}));
  EXPECT_EQ(picture(chunk(2), 5, 5, 0), (Picture{"xx...", "xx...", "..xx.", "..xx.", "....x"}));
  EXPECT_EQ(picture(segments({0, 1, 3}), 5, 5, 0), (Picture{"x....", ".xx..", ".xx..", "...xx", "...xx"}));
  EXPECT_EQ(picture(causal() & segments({0, 2}), 4, 4, 0), (Picture{"x...", "xx..", "..x.", "..xx"}));
}

TEST(MaskTest, HugeNumbersDoNotOverflow) {
  const Index huge = std::numeric_limits<Index>::max() / 4;
  for (const Mask& mask : {window(huge, huge), prefix(huge), chunk(huge), segments({0, huge}), window(0, 0, huge)}) {
    for (Index q = 0; q < 3; ++q) EXPECT_EQ(disagreement(mask, q, {3, 5, 2}), "") << to_string(mask);
  }
  EXPECT_EQ(disagreement(window(std::numeric_limits<Index>::max(), std::numeric_limits<Index>::max()), 1, {3, 5, 2}), "");
}

TEST(MaskTest, RefusesRulesThatCannotBe) {
  EXPECT_TRUE(mentions(text_of<ShapeError>([] { window(-2); }), "-2"));
  EXPECT_TRUE(mentions(text_of<ShapeError>([] { window(0, -7); }), "-7"));
  EXPECT_TRUE(mentions(text_of<ShapeError>([] { window(0, 0, -3); }), "sinks", "-3"));
  EXPECT_TRUE(mentions(text_of<ShapeError>([] { prefix(-1); }), "prefix", "-1"));
  EXPECT_TRUE(mentions(text_of<ShapeError>([] { chunk(0); }), "chunk", "0"));
  EXPECT_TRUE(mentions(text_of<ShapeError>([] { segments({}); }), "segments"));
  EXPECT_TRUE(mentions(text_of<ShapeError>([] { segments({1, 2}); }), "1"));
  EXPECT_TRUE(mentions(text_of<ShapeError>([] { segments({0, 5, 5}); }), "5"));
  EXPECT_TRUE(
      mentions(text_of<ShapeError>([] { static_cast<void>(window(0, 0, 1) & window(1, 0, 1) & window(2, 0, 1) & window(3, 0, 1)); }), "4"));
}

TEST(MaskTest, Texts) {
  EXPECT_EQ(to_string(Mask{}), "none");
  EXPECT_EQ(to_string(causal() & window(4, 0, 2)), "causal & window(left=4, right=0, sinks=2)");
}

TEST(RowIntervalsTest, AddJoinsAndDrops) {
  RowIntervals row;
  row.add({3, 3});
  EXPECT_EQ(row.count, 0);
  row.add({1, 2});
  row.add({2, 5});
  EXPECT_EQ(row.count, 1);
  EXPECT_EQ(row.items[0], (Interval{1, 5}));
  row.add({7, 9});
  EXPECT_EQ(row.count, 2);
}

TEST(RowIntervalsTest, IntersectMatchesSets) {
  check("intersect holds the common keys", [] {
    const auto some = [] {
      RowIntervals row;
      Index at = 0;
      const int count = *rc::gen::inRange(0, 3);
      for (int i = 0; i < count; ++i) {
        const Index lo = at + *rc::gen::inRange<Index>(1, 10);
        at = lo + *rc::gen::inRange<Index>(1, 10);
        row.add({lo, at});
      }
      return row;
    };
    const auto keys = [](const RowIntervals& row) {
      std::set<Index> set;
      for (int i = 0; i < row.count; ++i) {
        for (Index k = row.items[static_cast<std::size_t>(i)].lo; k < row.items[static_cast<std::size_t>(i)].hi; ++k) set.insert(k);
      }
      return set;
    };
    const RowIntervals a = some();
    const RowIntervals b = some();
    std::set<Index> expected;
    for (const Index k : keys(a)) {
      if (keys(b).contains(k)) expected.insert(k);
    }
    RC_ASSERT(keys(intersect(a, b)) == expected);
  });
}

}  // namespace
}  // namespace mha::test
