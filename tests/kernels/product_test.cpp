// The products: scores, linear, accumulate and its kin. Against double, at odd sizes, between guard pages; and bitwise against themselves
// with the rows in other groups, which is what determinism stands on.
#include <gtest/gtest.h>

#include "kernels/leaf_test.h"

namespace mha::test {
namespace {

class ProductTest : public LeafTest {};
INSTANTIATE_TEST_SUITE_P(Isa, ProductTest, testing::ValuesIn(leaf_params()), isa_name);

constexpr Index kDims[] = {1, 2, 3, 7, 8, 16, 17, 33, 64, 67};
constexpr Index kCounts[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 31, 67};

TEST_P(ProductTest, ScoresAreDotProducts) {
  for (int vectors = 1; vectors <= table().panel_vectors; ++vectors) {
    for (const Index dim : kDims) {
      for (const Index count : kCounts) {
        const Index stride = dim + count % 3;
        const Index ld = (vectors + 1) * lanes();
        const Guarded<float> keys = normals(count == 0 ? 0 : (count - 1) * stride + dim, 1);
        const Guarded<float> queries = normals((dim - 1) * ld + vectors * lanes(), 2);
        const Guarded<float> out = filled(count == 0 ? 0 : (count - 1) * ld + vectors * lanes(), kUntouched);
        const Guarded<float> max = filled(vectors * lanes(), -0.5F);
        table().scores({keys.data(), stride, count, dim}, queries.data(), ld, vectors, out.data(), max.data());
        Guarded<float> largest = filled(vectors * lanes(), -0.5F);
        for (Index i = 0; i < static_cast<Index>(out.size()); ++i) {
          const Index k = i / ld;
          const Index l = i % ld;
          if (l >= vectors * lanes()) {
            ASSERT_EQ(out[i], kUntouched);
            continue;
          }
          double exact = 0;
          double magnitude = 0;
          for (Index d = 0; d < dim; ++d) {
            const double product = static_cast<double>(keys[k * stride + d]) * static_cast<double>(queries[d * ld + l]);
            exact += product;
            magnitude += std::abs(product);
          }
          ASSERT_LE(std::abs(static_cast<double>(out[i]) - exact), dot_tolerance(dim) * magnitude)
              << "dim " << dim << " key " << k << " lane " << l;
          largest[l] = std::max(largest[l], out[i]);
        }
        for (Index l = 0; l < vectors * lanes(); ++l) ASSERT_EQ(max[l], largest[l]) << "lane " << l;
      }
    }
  }
}

TEST_P(ProductTest, ScoresDoNotDependOnTheirNeighbours) {
  const Index dim = 37;
  const Index count = 29;
  const int vectors = table().panel_vectors;
  const Index ld = vectors * lanes();
  const Guarded<float> keys = normals(count * dim, 1);
  const Guarded<float> queries = normals(dim * ld, 2);
  const Guarded<float> together = filled(count * ld, kUntouched);
  table().scores({keys.data(), dim, count, dim}, queries.data(), ld, vectors, together.data(), nullptr);
  const Guarded<float> alone = filled(lanes(), kUntouched);
  for (Index k = 0; k < count; ++k) {
    for (int v = 0; v < vectors; ++v) {
      table().scores({keys.data() + k * dim, dim, 1, dim}, queries.data() + v * lanes(), ld, 1, alone.data(), nullptr);
      for (Index l = 0; l < lanes(); ++l) ASSERT_TRUE(same(alone[l], together[k * ld + v * lanes() + l])) << "key " << k << " lane " << l;
    }
  }
}

TEST_P(ProductTest, NaNTakesNoPartInTheMaximum) {
  const Index count = 9;
  for (Index nan_at = 0; nan_at < count; ++nan_at) {
    const Guarded<float> keys = filled(count, 1.0F);
    keys[nan_at] = kNaN;
    keys[(nan_at + 1) % count] = 3.0F;
    const Guarded<float> queries = filled(lanes(), 2.0F);
    const Guarded<float> out = filled(count * lanes(), kUntouched);
    const Guarded<float> max = filled(lanes(), -kInf);
    table().scores({keys.data(), 1, count, 1}, queries.data(), lanes(), 1, out.data(), max.data());
    for (Index l = 0; l < lanes(); ++l) {
      ASSERT_EQ(max[l], 6.0F) << nan_at;
      ASSERT_TRUE(std::isnan(out[nan_at * lanes() + l]));
    }
  }
}

TEST_P(ProductTest, LinearIsXTimesPanelPlusInit) {
  const Index width = table().panel_vectors * lanes();
  for (Index columns = 1; columns <= width; ++columns) {
    for (const Index dim : {1, 5, 16, 33}) {
      for (const Index count : {0, 1, 2, 4, 5, 8, 13}) {
        const Index stride = dim + 2;
        const Index y_stride = columns + count % 2;
        const Guarded<float> x = normals(count == 0 ? 0 : (count - 1) * stride + dim, 1);
        const Guarded<float> panel = normals(dim * width, 2);
        const Guarded<float> init = normals(width, 3);
        const Guarded<float> y = filled(count == 0 ? 0 : (count - 1) * y_stride + columns, kUntouched);
        table().linear({x.data(), stride, count, dim}, panel.data(), init.data(), columns, y.data(), y_stride);
        for (Index i = 0; i < static_cast<Index>(y.size()); ++i) {
          const Index r = i / y_stride;
          const Index n = i % y_stride;
          if (n >= columns) {
            ASSERT_EQ(y[i], kUntouched);
            continue;
          }
          double exact = static_cast<double>(init[n]);
          double magnitude = std::abs(exact);
          for (Index d = 0; d < dim; ++d) {
            const double product = static_cast<double>(x[r * stride + d]) * static_cast<double>(panel[d * width + n]);
            exact += product;
            magnitude += std::abs(product);
          }
          ASSERT_LE(std::abs(static_cast<double>(y[i]) - exact), dot_tolerance(dim + 1) * magnitude)
              << "columns " << columns << " dim " << dim;
        }
      }
    }
  }
}

TEST_P(ProductTest, LinearRowsDoNotDependOnTheirNeighbours) {
  const Index width = table().panel_vectors * lanes();
  const Index dim = 41;
  const Index count = 23;
  const Guarded<float> x = normals(count * dim, 1);
  const Guarded<float> panel = normals(dim * width, 2);
  const Guarded<float> init = normals(width, 3);
  const Guarded<float> together(count * width, leaf_guard);
  const Guarded<float> alone(width, leaf_guard);
  table().linear({x.data(), dim, count, dim}, panel.data(), init.data(), width, together.data(), width);
  for (Index r = 0; r < count; ++r) {
    table().linear({x.data() + r * dim, dim, 1, dim}, panel.data(), init.data(), width, alone.data(), width);
    for (Index n = 0; n < width; ++n) ASSERT_TRUE(same(alone[n], together[r * width + n])) << "row " << r << " column " << n;
  }
}

TEST_P(ProductTest, AccumulateAddsWeightedValues) {
  for (int vectors = 1; vectors <= table().panel_vectors; ++vectors) {
    for (const Index dim : kDims) {
      for (const Index count : kCounts) {
        for (const bool with_alpha : {false, true}) {
          const Index stride = dim + count % 3;
          const Index ld = (vectors + 1) * lanes();
          const Guarded<float> values = normals(count == 0 ? 0 : (count - 1) * stride + dim, 1);
          const Guarded<float> weights = normals(count == 0 ? 0 : (count - 1) * ld + vectors * lanes(), 2);
          const Guarded<float> alpha = normals(vectors * lanes(), 3);
          const Guarded<float> before = normals((dim - 1) * ld + vectors * lanes(), 4);
          const Guarded<float> acc = copy_of(before);
          table().accumulate({values.data(), stride, count, dim}, weights.data(), ld, vectors, with_alpha ? alpha.data() : nullptr,
                             acc.data());
          for (Index i = 0; i < static_cast<Index>(acc.size()); ++i) {
            const Index d = i / ld;
            const Index l = i % ld;
            if (l >= vectors * lanes()) {
              ASSERT_TRUE(same(acc[i], before[i]));
              continue;
            }
            double exact = static_cast<double>(before[i]) * (with_alpha ? static_cast<double>(alpha[l]) : 1.0);
            double magnitude = std::abs(exact);
            for (Index k = 0; k < count; ++k) {
              const double product = static_cast<double>(values[k * stride + d]) * static_cast<double>(weights[k * ld + l]);
              exact += product;
              magnitude += std::abs(product);
            }
            ASSERT_LE(std::abs(static_cast<double>(acc[i]) - exact), dot_tolerance(count + 2) * magnitude)
                << "dim " << dim << " count " << count;
          }
        }
      }
    }
  }
}

TEST_P(ProductTest, AccumulateVisibleLeavesHiddenPairsOut) {
  for (const Index dim : kDims) {
    for (const Index count : {1, 2, 5, 16}) {
      const Index ld = 2 * lanes();
      const Guarded<float> values = normals(count * dim, 1);
      const Guarded<float> weights = normals((count - 1) * ld + lanes(), 2);
      const Guarded<float> before = normals((dim - 1) * ld + lanes(), 3);
      const Guarded<float> acc = copy_of(before);
      const Guarded<std::uint16_t> visible(count, leaf_guard);
      for (Index k = 0; k < count; ++k) visible[k] = static_cast<std::uint16_t>(0x5A3C >> (k % 5));
      visible[0] = 0;  // nobody sees key 0
      for (Index d = 0; d < dim; ++d) values[d] = d % 2 == 0 ? kNaN : kInf;
      table().accumulate_visible({values.data(), dim, count, dim}, weights.data(), ld, visible.data(), acc.data());
      for (Index d = 0; d < dim; ++d) {
        for (Index l = 0; l < lanes(); ++l) {
          double exact = static_cast<double>(before[d * ld + l]);
          double magnitude = std::abs(exact);
          for (Index k = 0; k < count; ++k) {
            if ((visible[k] >> l & 1) == 0) continue;
            const double product = static_cast<double>(values[k * dim + d]) * static_cast<double>(weights[k * ld + l]);
            exact += product;
            magnitude += std::abs(product);
          }
          ASSERT_LE(std::abs(static_cast<double>(acc[d * ld + l]) - exact), dot_tolerance(count + 1) * magnitude)
              << "d " << d << " lane " << l;
        }
      }
    }
  }
}

TEST_P(ProductTest, RescaleMultipliesLaneByLane) {
  for (int vectors = 1; vectors <= table().panel_vectors; ++vectors) {
    for (const Index dim : kDims) {
      const Index ld = (vectors + 1) * lanes();
      const Guarded<float> before = normals((dim - 1) * ld + vectors * lanes(), 1);
      const Guarded<float> acc = copy_of(before);
      const Guarded<float> alpha = normals(vectors * lanes(), 2);
      table().rescale(acc.data(), ld, vectors, dim, alpha.data());
      for (Index i = 0; i < static_cast<Index>(acc.size()); ++i) {
        ASSERT_TRUE(same(acc[i], i % ld < vectors * lanes() ? alpha[i % ld] * before[i] : before[i])) << i;
      }
    }
  }
}

TEST_P(ProductTest, AllFiniteFindsEveryCulprit) {
  for (const Index dim : kDims) {
    for (const Index count : {0, 1, 3}) {
      const Index stride = dim + 2;
      const Guarded<float> values = normals(count == 0 ? 0 : (count - 1) * stride + dim, 1);
      for (Index r = 0; r + 1 < count; ++r) values[r * stride + dim] = kNaN;  // in the gap: not part of the rows
      const kernels::Rows rows = {values.data(), stride, count, dim};
      ASSERT_TRUE(table().all_finite(rows)) << "dim " << dim;
      if (count > 0) {
        values[0] = std::numeric_limits<float>::max();
        ASSERT_TRUE(table().all_finite(rows)) << "FLT_MAX is finite";
      }
      for (Index r = 0; r < count; ++r) {
        for (Index d = 0; d < dim; ++d) {
          for (const float culprit : {kNaN, kInf, -kInf}) {
            const float before = values[r * stride + d];
            values[r * stride + d] = culprit;
            ASSERT_FALSE(table().all_finite(rows)) << "dim " << dim << " row " << r << " d " << d << " " << culprit;
            values[r * stride + d] = before;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace mha::test
