// Leaves that move rows in and out: load_rows, store_row, load_queries, store_rows. Against dtype.h, at odd sizes, between guard pages.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/leaf_test.h"
#include "mha/dtype.h"

namespace mha::test {
namespace {

using kernels::Storage;

class ConvertTest : public LeafTest {};
INSTANTIATE_TEST_SUITE_P(Isa, ConvertTest, testing::ValuesIn(leaf_params()), isa_name);

auto load(const kernels::KernelTable& table, Storage storage) { return table.load_rows[static_cast<int>(storage)]; }
auto store(const kernels::KernelTable& table, Storage storage) { return table.store_row[static_cast<int>(storage)]; }

template <class Stored>
constexpr Storage kStorageOf = Storage::F32;
template <>
constexpr Storage kStorageOf<Bf16> = Storage::Bf16;
template <>
constexpr Storage kStorageOf<F16> = Storage::F16;

float value_of(float x) { return x; }
float value_of(Bf16 x) { return x.to_float(); }
float value_of(F16 x) { return x.to_float(); }
void assign(float& to, float x) { to = x; }
void assign(Bf16& to, float x) { to = Bf16::from_float(x); }
void assign(F16& to, float x) { to = F16::from_float(x); }

template <class Stored>
void loads_any_shape(const kernels::KernelTable& table) {
  for (const Index dim : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 48, 67}) {
    for (const Index rows : {0, 1, 2, 5}) {
      for (const Index gap : {0, 1, 5}) {
        const Index stride = dim + gap;
        const Guarded<Stored> src(rows == 0 ? 0 : (rows - 1) * stride + dim, leaf_guard);
        for (Index i = 0; i < static_cast<Index>(src.size()); ++i) assign(src[i], static_cast<float>(i % 97) - 31.25F);
        const Index dst_stride = dim + 3;
        const Guarded<float> dst = filled(rows == 0 ? 0 : (rows - 1) * dst_stride + dim, kUntouched);
        load(table, kStorageOf<Stored>)(src.data(), stride, rows, dim, dst.data(), dst_stride);
        for (Index i = 0; i < static_cast<Index>(dst.size()); ++i) {
          const Index r = i / dst_stride;
          const Index d = i % dst_stride;
          const float expected = d < dim ? value_of(src[r * stride + d]) : kUntouched;
          ASSERT_TRUE(same(dst[i], expected)) << "dim " << dim << " rows " << rows << " row " << r << " d " << d;
        }
      }
    }
  }
}

TEST_P(ConvertTest, LoadsRowsOfAnyShape) {
  loads_any_shape<float>(table());
  loads_any_shape<Bf16>(table());
  loads_any_shape<F16>(table());
}

template <class Stored>
void loads_every_value(const kernels::KernelTable& table) {
  constexpr Index kAll = 65'536;
  const Guarded<Stored> src(kAll, leaf_guard);
  for (Index i = 0; i < kAll; ++i) src[i].bits = static_cast<std::uint16_t>(i);
  const Guarded<float> dst(kAll, leaf_guard);
  load(table, kStorageOf<Stored>)(src.data(), kAll, 1, kAll, dst.data(), kAll);
  for (Index i = 0; i < kAll; ++i) ASSERT_TRUE(same(dst[i], src[i].to_float())) << i;
}

TEST_P(ConvertTest, LoadsAll65536Values) {
  loads_every_value<Bf16>(table());
  loads_every_value<F16>(table());
}

template <class Stored>
void stores_hard_values(const kernels::KernelTable& table) {
  std::vector<float> hard;
  for (std::uint32_t upper = 0; upper <= 0xFFFFU; ++upper) {
    for (const std::uint32_t lower : {0x0000U, 0x0FFFU, 0x1000U, 0x1001U, 0x3000U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      hard.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  const auto count = static_cast<Index>(hard.size());
  const Guarded<Stored> dst(count, leaf_guard);
  store(table, kStorageOf<Stored>)(hard.data(), count, dst.data());
  for (Index i = 0; i < count; ++i) {
    const float value = hard[static_cast<std::size_t>(i)];
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(dst[i].to_float())) << std::bit_cast<std::uint32_t>(value);
    } else {
      ASSERT_EQ(dst[i].bits, Stored::from_float(value).bits) << std::bit_cast<std::uint32_t>(value);
    }
  }
}

TEST_P(ConvertTest, StoresRoundToNearestEven) {
  stores_hard_values<Bf16>(table());
  stores_hard_values<F16>(table());
}

template <class Stored>
void stores_any_dim(const kernels::KernelTable& table) {
  for (Index dim = 0; dim <= 70; ++dim) {
    const Guarded<float> src = normals(dim, 5);
    const Guarded<Stored> dst(dim, leaf_guard);
    store(table, kStorageOf<Stored>)(src.data(), dim, dst.data());
    for (Index d = 0; d < dim; ++d) {
      Stored expected;
      assign(expected, src[d]);
      ASSERT_TRUE(same(value_of(dst[d]), value_of(expected))) << "dim " << dim << " d " << d;
    }
  }
}

TEST_P(ConvertTest, StoresRowsOfAnyDim) {
  stores_any_dim<float>(table());
  stores_any_dim<Bf16>(table());
  stores_any_dim<F16>(table());
}

/// `count` rows of `dim`, each flush with a guard page, and pointers to them.
struct PointedRows {
  std::vector<Guarded<float>> rows;
  Guarded<const float*> pointers;
  Guarded<float*> writable;

  PointedRows(Index count, Index dim, float value) : pointers(count, leaf_guard), writable(count, leaf_guard) {
    for (Index r = 0; r < count; ++r) {
      rows.push_back(std::isnan(value) ? normals(dim, static_cast<std::uint64_t>(r) + 1) : filled(dim, value));
      pointers[r] = rows.back().data();
      writable[r] = rows.back().data();
    }
  }
};

TEST_P(ConvertTest, LoadQueriesTransposesAndScales) {
  for (const Index dim : {1, 2, 7, 8, 9, 16, 17, 33, 67}) {
    for (Index count = 0; count <= lanes(); ++count) {
      const Index ld = 2 * lanes();
      PointedRows queries(count, dim, kNaN);
      const Guarded<float> dst = filled((dim - 1) * ld + lanes(), kUntouched);
      table().load_queries(queries.pointers.data(), static_cast<int>(count), dim, 0.3F, dst.data(), ld);
      for (Index i = 0; i < static_cast<Index>(dst.size()); ++i) {
        const Index d = i / ld;
        const Index l = i % ld;
        const float row = l < count ? 0.3F * queries.rows[static_cast<std::size_t>(l)][d] : 0.0F;
        ASSERT_TRUE(same(dst[i], l < lanes() ? row : kUntouched)) << "dim " << dim << " count " << count << " d " << d << " lane " << l;
      }
    }
  }
}

TEST_P(ConvertTest, StoreRowsTransposesBackAndScales) {
  for (const Index dim : {1, 2, 7, 8, 9, 16, 17, 33, 67}) {
    for (Index count = 0; count <= lanes(); ++count) {
      const Index ld = 2 * lanes();
      const Guarded<float> src = normals((dim - 1) * ld + lanes(), 3);
      const Guarded<float> factor = normals(lanes(), 4);
      PointedRows out(count, dim, kUntouched);
      table().store_rows(src.data(), ld, static_cast<int>(count), dim, factor.data(), out.writable.data());
      for (Index l = 0; l < count; ++l) {
        for (Index d = 0; d < dim; ++d) {
          ASSERT_TRUE(same(out.rows[static_cast<std::size_t>(l)][d], src[d * ld + l] * factor[l]))
              << "dim " << dim << " lane " << l << " d " << d;
        }
      }
    }
  }
}

}  // namespace
}  // namespace mha::test
