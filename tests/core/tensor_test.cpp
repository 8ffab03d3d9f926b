// Dims, views and owning tensors: shapes, strides, slices, conversions, errors and their texts.
#include "mha/tensor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "mha/error.h"
#include "support/errors.h"
#include "support/near.h"

namespace mha {
namespace {

using test::mentions;
using test::text_of;

std::vector<float> counted(Index n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

TEST(DimsTest, HoldsUpToFourNumbers) {
  const Dims dims = {2, 5, 8, 64};
  EXPECT_EQ(dims.rank(), 4);
  EXPECT_EQ(dims[2], 8);
  EXPECT_EQ(to_string(dims), "[2, 5, 8, 64]");
  EXPECT_EQ(to_string(Dims{}), "[]");
  EXPECT_EQ((Dims{2, 3}), (Dims{2, 3}));
  EXPECT_FALSE((Dims{2, 3}) == (Dims{2, 3, 1}));
  EXPECT_TRUE(mentions(text_of<ShapeError>([] { static_cast<void>(Dims{1, 2, 3, 4, 5}); }), "5"));
}

TEST(DimsTest, ElementCount) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({3, 4}), 12);
  EXPECT_EQ(element_count({3, 0, 1'000'000'000'000}), 0);
  EXPECT_EQ(element_count({Index{1} << 40, Index{1} << 22}), Index{1} << 62);
  EXPECT_THROW(element_count({Index{1} << 40, Index{1} << 23}), ShapeError);
  EXPECT_THROW(element_count({Index{1} << 62, Index{1} << 62, 0, -1}), ShapeError);
  EXPECT_TRUE(mentions(text_of<ShapeError>([] { element_count({3, -4}); }), "-4"));
}

TEST(DimsTest, ContiguousStrides) {
  EXPECT_EQ(contiguous_strides({2, 3, 4, 5}), (Dims{60, 20, 5, 1}));
  EXPECT_EQ(contiguous_strides({7}), (Dims{1}));
  EXPECT_EQ(contiguous_strides({}), (Dims{}));
}

TEST(ViewTest, AbsentIsFalse) {
  EXPECT_FALSE(ConstTensorView{});
  EXPECT_FALSE(TensorView{});
  EXPECT_FALSE(Tensor{});
  const float one = 1;
  EXPECT_TRUE(ConstTensorView(&one, {1}));
}

TEST(ViewTest, RefusesWhatCannotBe) {
  const float one = 1;
  EXPECT_THROW(ConstTensorView(&one, DType::F32, {1, 2}, {1}), ShapeError);
  EXPECT_THROW(ConstTensorView(&one, {-1}), ShapeError);
  const ConstTensorView view(&one, {1});
  const std::string text = text_of<DTypeError>([&] { static_cast<void>(view.as<double>()); });
  EXPECT_TRUE(mentions(text, "f32"));
  EXPECT_TRUE(mentions(text, "f64"));
}

TEST(ViewTest, SliceTransposeReshape) {
  const std::vector<float> data = counted(24);
  const ConstTensorView view(data.data(), {2, 3, 4});
  EXPECT_TRUE(view.is_contiguous());

  const ConstTensorView rows = view.slice(1, 1, 3);
  EXPECT_EQ(rows.shape, (Dims{2, 2, 4}));
  EXPECT_EQ(rows.strides, view.strides);
  EXPECT_EQ(test::element(rows, 1, 0, 2), 12 + 4 + 2);
  EXPECT_FALSE(rows.is_contiguous());
  EXPECT_TRUE(view.slice(0, 1, 2).is_contiguous());

  const ConstTensorView turned = view.transpose(0, 2);
  EXPECT_EQ(turned.shape, (Dims{4, 3, 2}));
  EXPECT_EQ(test::element(turned, 3, 1, 1), test::element(view, 1, 1, 3));

  EXPECT_EQ(test::element(view.reshape({4, 6}), 2, 3), 15);
  EXPECT_EQ(view.reshape({24}).shape, (Dims{24}));
  EXPECT_EQ(view.slice(1, 3, 3).shape, (Dims{2, 0, 4}));
}

TEST(ViewTest, SliceTransposeReshapeRefuse) {
  const std::vector<float> data = counted(24);
  const ConstTensorView view(data.data(), {2, 3, 4});
  EXPECT_THROW(view.slice(1, 2, 4), ShapeError);
  EXPECT_THROW(view.slice(1, 2, 1), ShapeError);
  EXPECT_THROW(view.slice(1, -1, 2), ShapeError);
  EXPECT_THROW(view.slice(3, 0, 1), ShapeError);
  EXPECT_THROW(view.slice(-1, 0, 1), ShapeError);
  EXPECT_THROW(view.transpose(0, 3), ShapeError);
  EXPECT_THROW(view.transpose(-1, 0), ShapeError);
  EXPECT_TRUE(mentions(text_of<ShapeError>([&] { view.reshape({5, 5}); }), "[5, 5]"));
  EXPECT_THROW(view.transpose(0, 2).reshape({24}), ShapeError);
}

TEST(ViewTest, SizeOneAxesDoNotCountForContiguity) {
  const std::vector<float> data = counted(4);
  EXPECT_TRUE(ConstTensorView(data.data(), DType::F32, {1, 4, 1}, {77, 1, 55}).is_contiguous());
  EXPECT_FALSE(ConstTensorView(data.data(), DType::F32, {2, 2}, {0, 1}).is_contiguous());
}

TEST(TensorTest, IsZeroedAlignedAndMoves) {
  Tensor tensor(DType::F32, {3, 5});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data<float>()) % 64, 0U);
  for (const double value : test::elements(tensor.view())) EXPECT_EQ(value, 0);
  tensor.data<float>()[7] = 9;
  const float* address = tensor.data<float>();
  const Tensor moved = std::move(tensor);
  EXPECT_EQ(moved.data<float>(), address);
  EXPECT_EQ(moved.data<float>()[7], 9);
}

TEST(TensorTest, CloneIsAnotherTensor) {
  Tensor tensor(DType::Bf16, {4});
  tensor.data<Bf16>()[2] = Bf16::from_float(3);
  Tensor clone = tensor.clone();
  EXPECT_TRUE(test::bitwise_equal(clone.view(), tensor.view()));
  clone.data<Bf16>()[2] = Bf16::from_float(5);
  EXPECT_EQ(test::element(tensor.view(), 2), 3);
}

TEST(TensorTest, ZeroSizesArePresent) {
  const Tensor tensor(DType::F32, {2, 0, 3});
  EXPECT_TRUE(tensor) << "an empty tensor is not an absent one";
  EXPECT_EQ(element_count(tensor.shape()), 0);
}

TEST(TensorTest, RefusesImpossibleSizes) {
  EXPECT_THROW(Tensor(DType::F32, {-1}), ShapeError);
  EXPECT_THROW(Tensor(DType::F32, {Index{1} << 62}), ShapeError);  // elements fit in 63 bits, bytes do not
  EXPECT_THROW(Tensor(DType::F64, {Index{1} << 40, Index{1} << 40}), ShapeError);
}

TEST(CopyTest, ConvertsBetweenFloatingDtypes) {
  const std::vector<float> data = {1.5F, -2.0F, 1e-8F, 65504.0F, 3.14159274F, 1e38F};
  const ConstTensorView from(data.data(), {2, 3});
  for (const DType dtype : {DType::F32, DType::F64, DType::Bf16, DType::F16}) {
    Tensor to(dtype, {2, 3});
    copy(from, to);
    for (Index i = 0; i < 6; ++i) {
      const float value = data[static_cast<std::size_t>(i)];
      const double expected = dtype == DType::Bf16  ? Bf16::from_float(value).to_float()
                              : dtype == DType::F16 ? F16::from_float(value).to_float()
                                                    : value;
      EXPECT_EQ(test::element(to.view(), i / 3, i % 3), expected) << name_of(dtype) << " " << i;
    }
  }
}

TEST(CopyTest, FollowsStrides) {
  const std::vector<float> data = counted(24);
  const ConstTensorView from = ConstTensorView(data.data(), {2, 3, 4}).transpose(0, 2);
  Tensor storage(DType::F32, {4, 3, 5});
  const TensorView to = storage.view().slice(2, 2, 4);
  copy(from, to);
  EXPECT_TRUE(test::bitwise_equal(to, from));
  EXPECT_EQ(test::element(storage.view(), 1, 1, 0), 0);
  EXPECT_EQ(test::element(storage.view(), 1, 1, 4), 0);
}

TEST(CopyTest, Refuses) {
  Tensor a(DType::F32, {2, 3});
  Tensor b(DType::F32, {3, 2});
  Tensor c(DType::Bool, {2, 3});
  EXPECT_TRUE(mentions(text_of<ShapeError>([&] { copy(a, b); }), "[3, 2]"));
  EXPECT_THROW(copy(a, c), DTypeError);
}

}  // namespace
}  // namespace mha
