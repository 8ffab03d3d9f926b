// Leaves that change scores before softmax: add_bias, hide_outside, hide_bits, row_max. Exact: every result is one addition or a select.
#include <gtest/gtest.h>

#include <cfloat>
#include <vector>

#include "kernels/leaf_test.h"

namespace mha::test {
namespace {

class HideTest : public LeafTest {};
INSTANTIATE_TEST_SUITE_P(Isa, HideTest, testing::ValuesIn(leaf_params()), isa_name);

constexpr Index kKeys[] = {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 64};

TEST_P(HideTest, AddBiasAddsAndHides) {
  for (const Index keys : kKeys) {
    const Index ld = 2 * lanes();
    const Guarded<float> before = normals(keys == 0 ? 0 : (keys - 1) * ld + lanes(), 1);
    if (keys > 2) before[0] = kNaN;  // hidden below
    std::vector<Guarded<float>> bias;
    const Guarded<const float*> pointers(lanes(), leaf_guard);
    for (Index l = 0; l < lanes(); ++l) {
      bias.push_back(normals(keys, static_cast<std::uint64_t>(l) + 2));
      for (Index k = 0; k < keys; k += 3) bias.back()[k] = -kInf;
      if (keys > 1) bias.back()[1] = -FLT_MAX;  // only a very small number
      pointers[l] = bias.back().data();
    }
    const Guarded<float> scores = copy_of(before);
    table().add_bias(scores.data(), ld, keys, pointers.data());
    for (Index i = 0; i < static_cast<Index>(scores.size()); ++i) {
      const Index k = i / ld;
      const Index l = i % ld;
      if (l >= lanes()) {
        ASSERT_TRUE(same(scores[i], before[i]));
        continue;
      }
      const float add = bias[static_cast<std::size_t>(l)][k];
      ASSERT_TRUE(same(scores[i], add == -kInf ? -kInf : before[i] + add)) << "key " << k << " lane " << l;
    }
  }
}

TEST_P(HideTest, HideOutsideSelects) {
  for (int vectors = 1; vectors <= table().panel_vectors; ++vectors) {
    for (const Index keys : kKeys) {
      const Index ld = (vectors + 1) * lanes();
      const Guarded<float> before = normals(keys == 0 ? 0 : (keys - 1) * ld + vectors * lanes(), 1);
      const Guarded<std::int32_t> lo(vectors * lanes(), leaf_guard);
      const Guarded<std::int32_t> hi(vectors * lanes(), leaf_guard);
      for (Index l = 0; l < vectors * lanes(); ++l) {
        lo[l] = static_cast<std::int32_t>(l * 5 % (keys + 3)) - 2;                           // before, inside and beyond the strip
        hi[l] = l % 4 == 0 ? lo[l] : lo[l] + static_cast<std::int32_t>(l * 3 % (keys + 2));  // some see nothing
      }
      if (keys > 0) before[0] = kNaN;  // lane 0 sees nothing: its NaN is hidden, and takes no part in the maximum anyway
      const Guarded<float> scores = copy_of(before);
      const Guarded<float> max = filled(vectors * lanes(), -1.0F);
      table().hide_outside(scores.data(), ld, vectors, keys, lo.data(), hi.data(), max.data());
      const Guarded<float> largest = filled(vectors * lanes(), -1.0F);
      for (Index i = 0; i < static_cast<Index>(scores.size()); ++i) {
        const Index k = i / ld;
        const Index l = i % ld;
        if (l >= vectors * lanes()) {
          ASSERT_TRUE(same(scores[i], before[i]));
          continue;
        }
        const float expected = lo[l] <= k && k < hi[l] ? before[i] : -kInf;
        ASSERT_TRUE(same(scores[i], expected)) << "key " << k << " lane " << l;
        if (expected > largest[l]) largest[l] = expected;
      }
      for (Index l = 0; l < vectors * lanes(); ++l) ASSERT_EQ(max[l], largest[l]) << "lane " << l;
    }
  }
}

TEST_P(HideTest, HideBitsSelects) {
  for (const Index keys : kKeys) {
    const Index ld = 2 * lanes();
    const Guarded<float> before = normals(keys == 0 ? 0 : (keys - 1) * ld + lanes(), 1);
    const Guarded<std::uint16_t> visible(keys, leaf_guard);
    for (Index k = 0; k < keys; ++k) visible[k] = static_cast<std::uint16_t>(40503 * (k + 1) % 65536);
    if (keys > 0) {
      visible[0] = 0;
      for (Index l = 0; l < lanes(); ++l) before[l] = kNaN;
    }
    if (keys > 1) visible[1] = 0xFFFF;
    const Guarded<float> scores = copy_of(before);
    const Guarded<float> max = filled(lanes(), -1.0F);
    table().hide_bits(scores.data(), ld, keys, visible.data(), max.data());
    const Guarded<float> largest = filled(lanes(), -1.0F);
    for (Index i = 0; i < static_cast<Index>(scores.size()); ++i) {
      const Index k = i / ld;
      const Index l = i % ld;
      if (l >= lanes()) {
        ASSERT_TRUE(same(scores[i], before[i]));
        continue;
      }
      const float expected = (visible[k] >> l & 1) != 0 ? before[i] : -kInf;
      ASSERT_TRUE(same(scores[i], expected)) << "key " << k << " lane " << l;
      if (expected > largest[l]) largest[l] = expected;
    }
    for (Index l = 0; l < lanes(); ++l) ASSERT_EQ(max[l], largest[l]) << "lane " << l;
  }
}

TEST_P(HideTest, RowMaxIgnoresNaN) {
  for (int vectors = 1; vectors <= table().panel_vectors; ++vectors) {
    for (const Index keys : kKeys) {
      const Index ld = (vectors + 1) * lanes();
      const Guarded<float> scores = normals(keys == 0 ? 0 : (keys - 1) * ld + vectors * lanes(), 1);
      for (Index k = 0; k < keys; k += 4) scores[k * ld + k % lanes()] = kNaN;
      const Guarded<float> max = filled(vectors * lanes(), -kInf);
      table().row_max(scores.data(), ld, vectors, keys, max.data());
      for (Index l = 0; l < vectors * lanes(); ++l) {
        float largest = -kInf;
        for (Index k = 0; k < keys; ++k) {
          if (scores[k * ld + l] > largest) largest = scores[k * ld + l];
        }
        ASSERT_EQ(max[l], largest) << "lane " << l;
      }
    }
  }
}

}  // namespace
}  // namespace mha::test
