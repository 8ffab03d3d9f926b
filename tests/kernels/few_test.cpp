// The products for few rows: against double, for every storage, at odd sizes; and bitwise against themselves with the rows in other groups.
#include <gtest/gtest.h>

#include <cstddef>

#include "kernels/leaf_test.h"
#include "mha/dtype.h"

namespace mha::test {
namespace {

class FewTest : public LeafTest {
 protected:
  static Index padded(Index dim) { return (dim + lanes() - 1) / lanes() * lanes(); }
};
INSTANTIATE_TEST_SUITE_P(Isa, FewTest, testing::ValuesIn(leaf_params()), isa_name);

constexpr Index kDims[] = {1, 3, 8, 15, 16, 17, 33, 64, 80, 128, 131};
constexpr Index kCounts[] = {0, 1, 2, 5, 16, 19, 32};

/// Normal numbers in a storage type.
template <class T>
Guarded<T> stored(Index count, std::uint64_t seed) {
  const Guarded<float> numbers = normals(count, seed);
  Guarded<T> out(count, leaf_guard);
  for (Index i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      out[i] = numbers[i];
    } else {
      out[i] = T::from_float(numbers[i]);
    }
  }
  return out;
}
float value_of(float x) { return x; }
float value_of(Bf16 x) { return x.to_float(); }
float value_of(F16 x) { return x.to_float(); }

template <class T>
constexpr int storage() {
  return static_cast<int>(std::is_same_v<T, float>  ? kernels::Storage::F32
                          : std::is_same_v<T, Bf16> ? kernels::Storage::Bf16
                                                    : kernels::Storage::F16);
}

/// Query rows padded with zeros to whole vectors.
Guarded<float> padded_rows(int rows, Index dim, Index stride, std::uint64_t seed) {
  Guarded<float> numbers = normals(rows * stride, seed);
  for (int r = 0; r < rows; ++r)
    for (Index d = dim; d < stride; ++d) numbers[r * stride + d] = 0.0F;
  return numbers;
}

template <class T>
void expect_scores(const kernels::KernelTable& table, int rows, Index dim, Index count) {
  const Index stride = dim + count % 3;
  const Index q_stride = (dim + table.lanes - 1) / table.lanes * table.lanes;
  const Index ld = 2 * table.lanes > rows ? 2 * table.lanes : rows + 1;
  const Guarded<T> keys = stored<T>(count == 0 ? 0 : (count - 1) * stride + dim, 1);
  const Guarded<float> queries = padded_rows(rows, dim, q_stride, 2);
  const Guarded<float> out = filled(count == 0 ? 0 : (count - 1) * ld + rows, kUntouched);
  table.scores_few[storage<T>()]({keys.data(), stride, count, dim}, queries.data(), q_stride, rows, out.data(), ld);
  for (Index i = 0; i < static_cast<Index>(out.size()); ++i) {
    const Index k = i / ld;
    const Index r = i % ld;
    if (r >= rows) {
      ASSERT_EQ(out[i], kUntouched);
      continue;
    }
    double exact = 0;
    double magnitude = 0;
    for (Index d = 0; d < dim; ++d) {
      const double product = static_cast<double>(value_of(keys[k * stride + d])) * static_cast<double>(queries[r * q_stride + d]);
      exact += product;
      magnitude += std::abs(product);
    }
    ASSERT_LE(std::abs(static_cast<double>(out[i]) - exact), dot_tolerance(dim) * magnitude)
        << "dim " << dim << " rows " << rows << " key " << k << " row " << r;
  }
}

TEST_P(FewTest, ScoresAreDotProducts) {
  for (int rows = 1; rows <= 11; ++rows) {
    for (const Index dim : kDims) {
      for (const Index count : kCounts) {
        expect_scores<float>(table(), rows, dim, count);
        expect_scores<Bf16>(table(), rows, dim, count);
        expect_scores<F16>(table(), rows, dim, count);
      }
    }
  }
}

template <class T>
void expect_accumulated(const kernels::KernelTable& table, int rows, Index dim, Index count) {
  const Index stride = dim + count % 3;
  const Index a_stride = (dim + table.lanes - 1) / table.lanes * table.lanes;
  const Index ld = table.lanes > rows ? table.lanes : rows + 1;
  const Guarded<T> values = stored<T>(count == 0 ? 0 : (count - 1) * stride + dim, 1);
  const Guarded<float> weights = normals(count == 0 ? 0 : (count - 1) * ld + rows, 2);
  const Guarded<float> before = normals(rows * a_stride, 3);
  const Guarded<float> alpha = normals(rows, 4);
  for (const bool with_alpha : {false, true}) {
    const Guarded<float> acc = copy_of(before);
    table.accumulate_few[storage<T>()]({values.data(), stride, count, dim}, weights.data(), ld, rows, with_alpha ? alpha.data() : nullptr,
                                       acc.data(), a_stride);
    for (int r = 0; r < rows; ++r) {
      for (Index d = 0; d < dim; ++d) {
        double exact = static_cast<double>(before[r * a_stride + d]) * (with_alpha ? static_cast<double>(alpha[r]) : 1.0);
        double magnitude = std::abs(exact);
        for (Index k = 0; k < count; ++k) {
          const double product = static_cast<double>(value_of(values[k * stride + d])) * static_cast<double>(weights[k * ld + r]);
          exact += product;
          magnitude += std::abs(product);
        }
        ASSERT_LE(std::abs(static_cast<double>(acc[r * a_stride + d]) - exact), dot_tolerance(count + 2) * magnitude)
            << "dim " << dim << " rows " << rows << " count " << count;
      }
    }
  }
}

TEST_P(FewTest, AccumulateIsTheWeightedSum) {
  for (int rows = 1; rows <= 11; ++rows) {
    for (const Index dim : kDims) {
      for (const Index count : kCounts) {
        expect_accumulated<float>(table(), rows, dim, count);
        expect_accumulated<Bf16>(table(), rows, dim, count);
        expect_accumulated<F16>(table(), rows, dim, count);
      }
    }
  }
}

TEST_P(FewTest, RowsDoNotDependOnTheirNeighbours) {
  const Index dim = 67;
  const Index count = 29;
  const int rows = 7;
  const Index stride = padded(dim);
  const Guarded<float> keys = normals(count * dim, 1);
  const Guarded<float> queries = padded_rows(rows, dim, stride, 2);
  const Guarded<float> together = filled(count * rows, kUntouched);
  const Guarded<float> acc = filled(rows * stride, 0.5F);
  const kernels::StoredRows stored_keys{keys.data(), dim, count, dim};
  table().scores_few[0](stored_keys, queries.data(), stride, rows, together.data(), rows);
  table().accumulate_few[0](stored_keys, together.data(), rows, rows, nullptr, acc.data(), stride);
  for (int r = 0; r < rows; ++r) {
    const Guarded<float> alone = filled(count, kUntouched);
    table().scores_few[0](stored_keys, queries.data() + r * stride, stride, 1, alone.data(), 1);
    for (Index k = 0; k < count; ++k) ASSERT_TRUE(same(alone[k], together[k * rows + r])) << "key " << k << " row " << r;
    const Guarded<float> own = filled(stride, 0.5F);
    table().accumulate_few[0](stored_keys, alone.data(), 1, 1, nullptr, own.data(), stride);
    for (Index d = 0; d < dim; ++d) ASSERT_TRUE(same(own[d], acc[r * stride + d])) << "row " << r << " d " << d;
  }
}

}  // namespace
}  // namespace mha::test
