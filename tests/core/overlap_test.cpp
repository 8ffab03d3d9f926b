// may_overlap against a brute-force answer: never false where two elements share an address, exact for equal strides.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "mha/tensor.h"
#include "support/gen.h"
#include "support/near.h"

namespace mha {
namespace {

std::set<Index> addresses(const ConstTensorView& view) {
  std::set<Index> all;
  test::for_each_position(view.shape, [&](Index i, Index j, Index k, Index l) {
    const Index at[4] = {i, j, k, l};
    Index offset = 0;
    for (int axis = 0; axis < view.rank(); ++axis) offset += at[axis] * view.stride(axis);
    const auto first = static_cast<Index>(reinterpret_cast<std::uintptr_t>(view.data)) + offset * static_cast<Index>(size_of(view.dtype));
    for (std::size_t byte = 0; byte < size_of(view.dtype); ++byte) all.insert(first + static_cast<Index>(byte));
  });
  return all;
}

bool overlap_by_hand(const ConstTensorView& a, const ConstTensorView& b) {
  const std::set<Index> left = addresses(a);
  for (const Index address : addresses(b)) {
    if (left.contains(address)) return true;
  }
  return false;
}

TEST(OverlapTest, ColumnRangesOfOneTensorDoNotOverlap) {
  std::vector<float> data(2 * 3 * 12);
  const ConstTensorView whole(data.data(), {2, 3, 12});
  const ConstTensorView q = whole.slice(2, 0, 4);
  const ConstTensorView k = whole.slice(2, 4, 8);
  EXPECT_FALSE(may_overlap(q, k));
  EXPECT_FALSE(may_overlap(k, q));
  EXPECT_TRUE(may_overlap(q, whole.slice(2, 3, 7)));
  EXPECT_TRUE(may_overlap(q, q));
  EXPECT_TRUE(may_overlap(whole, k));
}

TEST(OverlapTest, AbsentAndEmptyOverlapNothing) {
  std::vector<float> data(4);
  const ConstTensorView view(data.data(), {4});
  EXPECT_FALSE(may_overlap(view, {}));
  EXPECT_FALSE(may_overlap(view.slice(0, 2, 2), view));
}

TEST(OverlapTest, NeighboursTouchWithoutOverlapping) {
  std::vector<float> data(8);
  EXPECT_FALSE(may_overlap(ConstTensorView(data.data(), {4}), ConstTensorView(data.data() + 4, {4})));
  EXPECT_TRUE(may_overlap(ConstTensorView(data.data(), {5}), ConstTensorView(data.data() + 4, {4})));
}

TEST(OverlapTest, BroadcastAxes) {
  std::vector<float> data(8);
  EXPECT_TRUE(
      may_overlap(ConstTensorView(data.data(), DType::F32, {3, 4}, {0, 1}), ConstTensorView(data.data(), DType::F32, {3, 1}, {0, 1})));
  EXPECT_FALSE(
      may_overlap(ConstTensorView(data.data(), DType::F32, {3, 4}, {0, 1}), ConstTensorView(data.data() + 4, DType::F32, {3, 4}, {0, 1})));
}

TEST(OverlapTest, AgreesWithBruteForce) {
  std::vector<float> data(4096);
  test::check("equal strides: exact where the strides nest; always: no overlap is missed", [&data] {
    const Index dim = *rc::gen::inRange<Index>(1, 5);
    const Index heads = *rc::gen::inRange<Index>(1, 5);
    const Index length = *rc::gen::inRange<Index>(1, 5);
    const Index head_step = dim + *rc::gen::inRange<Index>(0, 9);
    const Index row_step = head_step * heads + *rc::gen::inRange<Index>(0, 9);
    const Dims shape = {length, heads, dim};
    const Dims strides = {row_step, head_step, 1};
    const auto sub = [&](Index offset) {
      Dims part = shape;
      for (int axis = 0; axis < 3; ++axis) part[axis] = *rc::gen::inRange<Index>(1, shape[axis] + 1);
      return ConstTensorView(data.data() + offset, DType::F32, part, strides);
    };
    const ConstTensorView a = sub(0);
    const ConstTensorView b = sub(*rc::gen::inRange<Index>(0, 60));
    RC_ASSERT(may_overlap(a, b) == overlap_by_hand(a, b));
    RC_ASSERT(may_overlap(b, a) == overlap_by_hand(a, b));
  });
  test::check("any strides: no overlap is missed", [&data] {
    const auto any = [&](Index offset) {
      Dims shape = {1, 1, 1};
      Dims strides = {1, 1, 1};
      for (int axis = 0; axis < 3; ++axis) {
        shape[axis] = *rc::gen::inRange<Index>(0, 5);
        strides[axis] = *rc::gen::inRange<Index>(-7, 12);
      }
      return ConstTensorView(data.data() + offset, DType::F32, shape, strides);
    };
    const ConstTensorView a = any(1000);
    const ConstTensorView b = any(1000 + *rc::gen::inRange<Index>(-40, 40));
    if (overlap_by_hand(a, b)) RC_ASSERT(may_overlap(a, b));
    const ConstTensorView same(b.data, b.dtype, b.shape, a.strides);
    if (overlap_by_hand(a, same)) RC_ASSERT(may_overlap(a, same));
  });
}

}  // namespace
}  // namespace mha
