// PackedLinear and linear_forward: right for every shape, layout and dtype, within the view, the same bits whatever runs beside it.
#include "nn/linear.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>

#include "mha/error.h"
#include "support/executors.h"
#include "support/gen.h"
#include "support/guard.h"
#include "support/isa_test.h"
#include "support/near.h"

namespace mha::test {
namespace {

using nn::LinearJob;
using nn::PackedLinear;

Tensor normal(DType dtype, Dims shape, std::uint64_t seed) {
  Tensor tensor(dtype, shape);
  fill_normal(tensor, seed);
  return tensor;
}

/// Every element within dot_tolerance of the sum of absolute values; x is [rows, inputs].
void expect_product(const ConstTensorView& x, const ConstTensorView& w, const ConstTensorView& b, const ConstTensorView& y) {
  for_each_position(y.shape, [&](Index r, Index n, Index, Index) {
    double sum = b ? element(b, n) : 0;
    double magnitude = std::abs(sum);
    for (Index d = 0; d < w.size(1); ++d) {
      sum += element(x, r, d) * element(w, n, d);
      magnitude += std::abs(element(x, r, d) * element(w, n, d));
    }
    const double error = std::abs(element(y, r, n) - sum);
    ASSERT_LE(error, dot_tolerance(w.size(1) + 1, y.dtype) * magnitude) << "row " << r << ", output " << n;
  });
}

class LinearTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, LinearTest, testing::ValuesIn(all_isas()), isa_name);

TEST_P(LinearTest, ShapesAroundPanelsAndTiles) {
  Workspace workspace;
  for (const Index rows : {1, 2, 7, 8, 9, 25, 70}) {
    for (const Index outputs : {1, 3, 15, 16, 17, 47, 48, 49, 96, 100}) {
      for (const Index inputs : {1, 2, 31, 64}) {
        SCOPED_TRACE(to_string(Dims{rows, outputs, inputs}));
        const Tensor w = normal(DType::F32, {outputs, inputs}, 1);
        const Tensor b = normal(DType::F32, {outputs}, 2);
        const Tensor x = normal(DType::F32, {rows, inputs}, 3);
        Tensor y(DType::F32, {rows, outputs});
        PackedLinear(w, b, "test").forward(x, y, workspace);
        expect_product(x, w, b, y);
      }
    }
  }
}

TEST_P(LinearTest, StorageDtypesAndNoBias) {
  Workspace workspace;
  for (const DType dtype : {DType::F32, DType::Bf16, DType::F16, DType::F64}) {
    SCOPED_TRACE(name_of(dtype));
    const DType compute = dtype == DType::F64 ? DType::F64 : DType::F32;
    const Tensor w = normal(dtype, {50, 33}, 1);
    const Tensor x = normal(compute, {11, 33}, 3);
    Tensor y(compute, {11, 50});
    PackedLinear(w, {}, "test").forward(x, y, workspace);
    expect_product(x, w, {}, y);
  }
}

TEST_P(LinearTest, StridedWeightsAndViews) {
  Workspace workspace;
  const Tensor memory = normal(DType::F32, {33, 50}, 1);  // the weight is its transpose
  const ConstTensorView w = memory.view().transpose(0, 1);
  const PackedLinear linear(w, {}, "test");
  Tensor wide = normal(DType::F32, {12, 70}, 2);
  Tensor result(DType::F32, {12, 110});
  fill(result, kMark);
  const ConstTensorView x(wide.data<float>() + 1, DType::F32, {12, 33}, {70, 2});  // step 2, unaligned
  const TensorView y(result.data<float>() + 3, DType::F32, {12, 50}, {110, 2});    // step 2: staged
  linear.forward(x, y, workspace);
  expect_product(x, w, {}, y);
  for (Index r = 0; r < 12; ++r) {
    for (Index i = 0; i < 110; ++i) {
      const bool gap = i < 3 || i > 101 || i % 2 == 0;
      EXPECT_TRUE(!gap || element(result, r, i) == static_cast<double>(kMark)) << "a gap was written: " << r << ", " << i;
    }
  }
  Tensor flipped(DType::F32, {12, 50});  // rows backwards: a negative stride
  const ConstTensorView backwards(wide.data<float>() + 11 * 70, DType::F32, {12, 33}, {-70, 1});
  linear.forward(backwards, flipped, workspace);
  expect_product(backwards, w, {}, flipped);
}

TEST_P(LinearTest, StaysInsideItsViews) {
  Workspace workspace;
  for (const Guard guard : {Guard::After, Guard::Before}) {
    for (const Index outputs : {5, 16, 49, 100}) {
      const Tensor w = normal(DType::F32, {outputs, 19}, 1);
      const GuardedTensor x(DType::F32, {10, 19}, guard);
      const GuardedTensor y(DType::F32, {10, outputs}, guard);
      fill_normal(x.view(), 5);
      PackedLinear(w, {}, "test").forward(x.view(), y.view(), workspace);
      expect_product(x.view(), w, {}, y.view());
    }
  }
}

// [batch, rows, width] whose batches do not lie one after the other, several linears at once.
TEST_P(LinearTest, SeveralOverOneInputInThreeAxes) {
  Workspace workspace;
  const Tensor w0 = normal(DType::F32, {20, 9}, 1);
  const Tensor w1 = normal(DType::F32, {65, 9}, 2);
  const Tensor b1 = normal(DType::F32, {65}, 3);
  const PackedLinear first(w0, {}, "first");
  const PackedLinear second(w1, b1, "second");
  const Tensor memory = normal(DType::F32, {6, 3, 9}, 4);
  const ConstTensorView x = memory.view().transpose(0, 1);  // [3, 6, 9]
  Tensor y0(DType::F32, {3, 6, 20});
  Tensor y1(DType::F32, {6, 3, 65});
  const TensorView y1_view = y1.view().transpose(0, 1);
  const std::array<LinearJob, 2> jobs = {{{&first, y0}, {&second, y1_view}}};
  linear_forward(x, jobs, workspace);
  for (Index b = 0; b < 3; ++b) {
    const auto entry = [b](const ConstTensorView& view) {
      const ConstTensorView part = view.slice(0, b, b + 1);
      return ConstTensorView(part.data, part.dtype, {part.size(1), part.size(2)}, {part.stride(1), part.stride(2)});
    };
    expect_product(entry(x), w0, {}, entry(y0.view()));
    expect_product(entry(x), w1, b1, entry(y1_view));
  }
}

TEST_P(LinearTest, SameBitsForAnyThreadsAndRowMates) {
  const Tensor w = normal(DType::F32, {300, 200}, 1);
  const Tensor b = normal(DType::F32, {300}, 2);
  const Tensor x = normal(DType::F32, {301, 200}, 3);
  const PackedLinear linear(w, b, "test");
  Workspace serial(serial_executor());
  Tensor expected(DType::F32, {301, 300});
  linear.forward(x, expected, serial);
  expect_product(x, w, b, expected);
  for (const int concurrency : {2, 7}) {
    Workspace backward(backward_executor(concurrency));
    Tensor y(DType::F32, {301, 300});
    linear.forward(x, y, backward);
    EXPECT_TRUE(bitwise_equal(y, expected)) << concurrency;
  }
  for (const Index row : {0, 1, 77, 300}) {
    Tensor alone(DType::F32, {1, 300});
    linear.forward(x.view().slice(0, row, row + 1), alone, serial);
    EXPECT_TRUE(bitwise_equal(alone, expected.view().slice(0, row, row + 1))) << row;
  }
}

TEST(Linear, RepacksWhenTheIsaChanges) {
  const Tensor w = normal(DType::F32, {101, 37}, 1);
  const Tensor b = normal(DType::F32, {101}, 2);
  const Tensor x = normal(DType::F32, {13, 37}, 3);
  Workspace workspace;
  for (const std::string& home : supported_kernel_isas()) {
    std::unique_ptr<PackedLinear> linear;
    {
      const IsaScope scope(home);
      linear = std::make_unique<PackedLinear>(w, b, "test");
    }
    for (const std::string& isa : supported_kernel_isas()) {
      const IsaScope scope(isa);
      Tensor y(DType::F32, {13, 101});
      Tensor fresh(DType::F32, {13, 101});
      linear->forward(x, y, workspace);
      PackedLinear(w, b, "test").forward(x, fresh, workspace);
      EXPECT_TRUE(bitwise_equal(y, fresh)) << "packed under " << home << ", run under " << isa;
    }
  }
}

TEST(Linear, NanAndInfinityPassThrough) {
  Workspace workspace;
  const Tensor w = normal(DType::F32, {20, 8}, 1);
  Tensor x = normal(DType::F32, {3, 8}, 2);
  x.data<float>()[8] = std::nanf("");
  Tensor y(DType::F32, {3, 20});
  PackedLinear(w, {}, "test").forward(x, y, workspace);
  for (Index n = 0; n < 20; ++n) {
    EXPECT_TRUE(std::isfinite(element(y, 0, n)));
    EXPECT_TRUE(std::isnan(element(y, 1, n)));
    EXPECT_TRUE(std::isfinite(element(y, 2, n)));
  }
}

template <class E, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(Linear, ErrorsNameBothNumbersAndComeFirst) {
  Workspace workspace;
  const Tensor w = normal(DType::F32, {20, 8}, 1);
  const PackedLinear linear(w, {}, "layer: wq");
  Tensor x(DType::F32, {3, 9});
  Tensor y(DType::F32, {3, 20});
  fill(y, kMark);
  EXPECT_EQ(message_of<ShapeError>([&] { linear.forward(x, y, workspace); }), "layer: wq: x has width 9, the weight has 8 inputs");
  EXPECT_EQ(message_of<ShapeError>([&] { linear.forward(x.view().slice(1, 0, 8), y.view().slice(0, 0, 2), workspace); }),
            "layer: wq: y has shape [2, 20], must be [3, 20]");
  Tensor wrong(DType::F64, {3, 8});
  EXPECT_EQ(message_of<DTypeError>([&] { linear.forward(wrong, y, workspace); }), "layer: wq: x is f64, the layer computes in f32");
  EXPECT_EQ(elements(y), std::vector<double>(60, static_cast<double>(kMark)));
  const Tensor short_bias(DType::F32, {19});
  EXPECT_EQ(message_of<ShapeError>([&] { PackedLinear(w, short_bias, "fc"); }), "fc: bias has shape [19], the weight has 20 outputs");
  const Tensor ints(DType::I64, {20, 8});
  EXPECT_EQ(message_of<DTypeError>([&] { PackedLinear(ints, {}, "fc"); }), "fc: weight is i64, f32, bf16, f16 or f64 is wanted");
  EXPECT_THROW(PackedLinear(Tensor(DType::F32, {0, 8}), {}, "fc"), ShapeError);
  Tensor square(DType::F32, {8, 8});
  const PackedLinear same(square, {}, "fc");
  EXPECT_EQ(message_of<ShapeError>([&] { same.forward(square, square, workspace); }), "fc: y overlaps x");
}

}  // namespace
}  // namespace mha::test
