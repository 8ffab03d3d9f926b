// Every error of attention_forward and attention_weights: its kind, the argument and the numbers in its text, and that nothing is touched.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "mha/attention.h"
#include "mha/error.h"
#include "support/errors.h"
#include "support/near.h"
#include "support/problem.h"

namespace mha::test {
namespace {

/// A sound call; each test spoils one thing.
class Call {
 public:
  Tensor q{DType::F32, {2, 5, 8, 16}}, k{DType::F32, {2, 7, 4, 16}}, v{DType::F32, {2, 7, 4, 12}}, out{DType::F32, {2, 5, 8, 12}};
  Tensor lse{DType::F32, {2, 8, 5}}, weights{DType::F32, {2, 8, 5, 7}};
  AttentionSpec spec;
  AttentionInputs inputs{.q = q, .k = k, .v = v};
  AttentionOutputs outputs{.out = out, .lse = lse, .weights = weights};
  std::vector<Index> lengths;

  void run() {
    for (Tensor* tensor : {&out, &lse, &weights}) fill(tensor->view(), kMark);
    Workspace workspace(serial_executor());
    attention_forward(spec, inputs, outputs, workspace);
  }
  bool untouched() {
    bool all = true;
    for (Tensor* tensor : {&out, &lse, &weights}) {
      for (const double value : elements(tensor->view())) all = all && value == static_cast<double>(kMark);
    }
    return all;
  }
};

template <class Kind, class... Parts>
void refuses(Call& call, const Parts&... parts) {
  EXPECT_TRUE(mentions(text_of<Kind>([&] { call.run(); }), "attention", parts...));
  EXPECT_TRUE(call.untouched()) << "outputs were touched before the error";
}

TEST(ValidateTest, TheSoundCallPasses) {
  Call call;
  EXPECT_NO_THROW(call.run());
  EXPECT_FALSE(call.untouched());
}

TEST(ValidateTest, Ranks) {
  for (const std::string name : {"q", "k", "v"}) {
    Call call;
    ConstTensorView& view = name == "q" ? call.inputs.q : name == "k" ? call.inputs.k : call.inputs.v;
    view = ConstTensorView(view.as<float>(), {2, 5, 128});
    refuses<ShapeError>(call, name + " has shape [2, 5, 128]");
  }
}

TEST(ValidateTest, AbsentArguments) {
  for (const std::string name : {"q", "k", "v", "out"}) {
    Call call;
    if (name == "q") call.inputs.q = {};
    if (name == "k") call.inputs.k = {};
    if (name == "v") call.inputs.v = {};
    if (name == "out") call.outputs.out = {};
    refuses<ShapeError>(call, name);
  }
}

TEST(ValidateTest, ShapesWithoutData) {
  for (const std::string name : {"q", "k", "v", "out"}) {
    Call call;
    if (name == "q") call.inputs.q.data = nullptr;
    if (name == "k") call.inputs.k.data = nullptr;
    if (name == "v") call.inputs.v.data = nullptr;
    if (name == "out") call.outputs.out.data = nullptr;
    refuses<ShapeError>(call, name + " has no data");
  }
}

TEST(ValidateTest, HeadsOfQMustBeAMultiple) {
  Call call;
  Tensor k(DType::F32, {2, 7, 3, 16});
  Tensor v(DType::F32, {2, 7, 3, 12});
  call.inputs.k = k;
  call.inputs.v = v;
  refuses<ShapeError>(call, "k has 3 heads", "q has 8");
  Tensor no_k(DType::F32, {2, 7, 0, 16});
  Tensor no_v(DType::F32, {2, 7, 0, 12});
  call.inputs.k = no_k;
  call.inputs.v = no_v;
  refuses<ShapeError>(call, "0 heads", "8");
}

TEST(ValidateTest, SizesThatContradict) {
  struct Spoiled {
    char name;
    Dims shape;
    std::vector<std::string> parts;
  };
  const Spoiled all[] = {
      {'k', {3, 7, 4, 16}, {"k", "batch 3", "2"}}, {'k', {2, 7, 4, 17}, {"k", "head_dim 17", "16"}},
      {'v', {3, 7, 4, 12}, {"v", "batch 3", "2"}}, {'v', {2, 6, 4, 12}, {"v", "length 6", "7"}},
      {'v', {2, 7, 2, 12}, {"v", "heads 2", "4"}},
  };
  for (const Spoiled& spoiled : all) {
    Call call;
    Tensor tensor(DType::F32, spoiled.shape);
    (spoiled.name == 'k' ? call.inputs.k : call.inputs.v) = tensor;
    refuses<ShapeError>(call, spoiled.parts[0], spoiled.parts[1], spoiled.parts[2]);
  }
}

TEST(ValidateTest, Dtypes) {
  for (const char name : {'k', 'v'}) {
    Call call;
    Tensor tensor(DType::Bf16, name == 'k' ? Dims{2, 7, 4, 16} : Dims{2, 7, 4, 12});
    (name == 'k' ? call.inputs.k : call.inputs.v) = tensor;
    refuses<DTypeError>(call, std::string(1, name) + " is bf16", "f32");
  }
  Call call;
  Tensor q(DType::I64, {2, 5, 8, 16});
  call.inputs.q = q;
  refuses<DTypeError>(call, "q is i64");
}

TEST(ValidateTest, Outputs) {
  {
    Call call;
    Tensor out(DType::F32, {2, 5, 8, 16});
    call.outputs.out = out;
    refuses<ShapeError>(call, "out has shape [2, 5, 8, 16]", "[2, 5, 8, 12]");
  }
  {
    Call call;
    Tensor out(DType::F16, {2, 5, 8, 12});
    call.outputs.out = out;
    refuses<DTypeError>(call, "out is f16", "f32");
  }
  {
    Call call;
    Tensor lse(DType::F32, {2, 5, 8});
    call.outputs.lse = lse;
    refuses<ShapeError>(call, "lse has shape [2, 5, 8]", "[2, 8, 5]");
  }
  {
    Call call;
    Tensor weights(DType::F32, {2, 8, 5, 6});
    call.outputs.weights = weights;
    refuses<ShapeError>(call, "weights has shape [2, 8, 5, 6]", "[2, 8, 5, 7]");
  }
  {
    Call call;
    Tensor weights(DType::F64, {2, 8, 5, 7});
    call.outputs.weights = weights;
    refuses<DTypeError>(call, "weights is f64", "f32");
  }
}

TEST(ValidateTest, OutputsOfSharedMemory) {
  Call call;
  call.outputs.out.strides[1] = 0;
  refuses<ShapeError>(call, "out", "stride 0", "axis 1");
}

TEST(ValidateTest, Overlaps) {
  {
    Call call;
    call.outputs.out = TensorView(call.q.data<float>(), {2, 5, 8, 12});
    refuses<ShapeError>(call, "out overlaps q");
  }
  {
    Call call;
    call.outputs.weights = TensorView(call.out.data<float>(), {2, 8, 5, 7});
    refuses<ShapeError>(call, "overlaps");
  }
}

TEST(ValidateTest, Allowed) {
  Tensor bits(DType::Bool, {2, 8, 5, 6});
  {
    Call call;
    call.inputs.allowed = bits;
    refuses<ShapeError>(call, "allowed has shape [2, 8, 5, 6]", "[2, 8, 5, 7]");
  }
  {
    Call call;
    call.inputs.allowed = ConstTensorView(bits.data<bool>(), {5, 7});
    refuses<ShapeError>(call, "allowed has shape [5, 7]");
  }
  {
    Call call;
    Tensor floats(DType::F32, {2, 8, 5, 7});
    call.inputs.allowed = floats;
    refuses<DTypeError>(call, "allowed is f32", "bool");
  }
}

TEST(ValidateTest, PerHeadNumbersAndSoftcap) {
  {
    Call call;
    call.spec.align = Align::TopLeft;
    call.spec.bias = AlibiBias{{0.5F, 0.25F}};
    refuses<ShapeError>(call, "ALiBi has 2 slopes", "8 heads");
  }
  {
    Call call;
    call.spec.align = Align::TopLeft;
    call.spec.bias = AlibiBias{std::vector<float>(8, std::numeric_limits<float>::infinity())};
    refuses<ShapeError>(call, "slope of head 0 is inf", "finite");
  }
  {
    Call call;
    call.spec.bias = AlibiBias{alibi_slopes(8)};
    refuses<ShapeError>(call, "an ALiBi bias needs align", "5 queries and 7 keys");
  }
  {
    Call call;
    call.spec.sink_logits = {1.0F};
    refuses<ShapeError>(call, "sink_logits has 1 entries", "8 heads");
  }
  for (const float cap : {0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN()}) {
    Call call;
    call.spec.softcap = cap;
    refuses<ShapeError>(call, "softcap is ", "above 0");
  }
}

TEST(ValidateTest, Bias) {
  Tensor floats(DType::F32, {2, 4, 5, 7});
  {
    Call call;
    call.spec.bias = DenseBias{floats};
    refuses<ShapeError>(call, "bias has shape [2, 4, 5, 7]", "[2, 8, 5, 7]");
  }
  {
    Call call;
    Tensor bits(DType::Bool, {2, 8, 5, 7});
    call.spec.bias = DenseBias{bits};
    refuses<DTypeError>(call, "bias is bool");
  }
  {
    Call call;
    call.spec.bias = DenseBias{};
    refuses<ShapeError>(call, "bias");
  }
}

TEST(ValidateTest, KvLengths) {
  {
    Call call;
    call.lengths = {7};
    call.inputs.kv_lengths = call.lengths;
    refuses<ShapeError>(call, "kv_lengths has 1", "batch is 2");
  }
  {
    Call call;
    call.lengths = {7, 8};
    call.inputs.kv_lengths = call.lengths;
    refuses<ShapeError>(call, "kv_lengths[1] is 8", "7");
  }
  {
    Call call;
    call.lengths = {-1, 7};
    call.inputs.kv_lengths = call.lengths;
    refuses<ShapeError>(call, "kv_lengths[0] is -1");
  }
}

TEST(ValidateTest, AlignmentIsNeverGuessed) {
  Call call;
  call.spec.mask = causal();
  refuses<ShapeError>(call, "causal", "align", "5 queries", "7 keys");
  call.spec.align = Align::TopLeft;
  EXPECT_NO_THROW(call.run());
  call.spec.align = Align::BottomRight;
  EXPECT_NO_THROW(call.run());
  call.spec.align = Align::Unset;
  call.lengths = {5, 5};
  call.inputs.kv_lengths = call.lengths;
  EXPECT_NO_THROW(call.run()) << "kv_lengths make the lengths equal: both alignments agree";
  call.lengths = {5, 4};
  call.inputs.kv_lengths = call.lengths;
  refuses<ShapeError>(call, "batch entry 1", "4 keys");
}

TEST(ValidateTest, Options) {
  for (const float scale : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Call call;
    call.spec.scale = scale;
    refuses<ShapeError>(call, "scale");
  }
  for (const float probability : {-0.1F, 1.5F, std::numeric_limits<float>::quiet_NaN()}) {
    Call call;
    call.spec.dropout.probability = probability;
    refuses<ShapeError>(call, "dropout");
  }
}

/// attention_weights, likewise.
class WeightsCall : public Call {
 public:
  Tensor table{DType::F32, {2, 3}};
  ConstTensorView given_lse = lse;
  WeightsRegion region{.batch = 1, .head = 6, .queries = {1, 3}, .keys = {4, 7}};
  TensorView target = table;
  void run() {
    Workspace workspace(serial_executor());
    fill(table.view(), kMark);
    attention_weights(spec, inputs, given_lse, region, target, workspace);
  }
};

template <class Kind, class... Parts>
void refuses_weights(WeightsCall& call, const Parts&... parts) {
  EXPECT_TRUE(mentions(text_of<Kind>([&] { call.run(); }), "attention_weights", parts...));
  for (const double value : elements(call.table.view())) EXPECT_EQ(value, static_cast<double>(kMark));
}

TEST(ValidateWeightsTest, TheSoundCallPasses) {
  WeightsCall call;
  EXPECT_NO_THROW(call.run());
  call.inputs.v = {};
  EXPECT_NO_THROW(call.run()) << "v is not read and may be absent";
}

TEST(ValidateWeightsTest, RegionsOutsideTheTable) {
  const auto spoiled = [](auto&& spoil, auto... parts) {
    WeightsCall call;
    spoil(call.region);
    refuses_weights<ShapeError>(call, parts...);
  };
  spoiled([](WeightsRegion& r) { r.batch = 2; }, "batch entry 2", "of 2");
  spoiled([](WeightsRegion& r) { r.batch = -1; }, "batch entry -1");
  spoiled([](WeightsRegion& r) { r.head = 8; }, "head 8 of 8");
  spoiled([](WeightsRegion& r) { r.queries = {4, 6}; }, "queries [4, 6)", "5");
  spoiled([](WeightsRegion& r) { r.queries = {-1, 1}; }, "queries [-1, 1)");
  spoiled([](WeightsRegion& r) { r.keys = {5, 8}; }, "keys [5, 8)", "7");
  spoiled([](WeightsRegion& r) { r.keys = {5, 2}; }, "keys [5, 2)");
  spoiled([](WeightsRegion& r) { r.keys = {0, 2}; }, "weights has shape [2, 3]", "[2, 2]");
}

TEST(ValidateWeightsTest, LseAndDtypes) {
  {
    WeightsCall call;
    Tensor other(DType::F32, {2, 5, 8});
    call.given_lse = other;
    refuses_weights<ShapeError>(call, "lse has shape [2, 5, 8]", "[2, 8, 5]");
  }
  {
    WeightsCall call;
    Tensor other(DType::F64, {2, 8, 5});
    call.given_lse = other;
    refuses_weights<DTypeError>(call, "lse is f64");
  }
  {
    WeightsCall call;
    Tensor other(DType::Bf16, {2, 3});
    call.target = other;
    refuses_weights<DTypeError>(call, "weights is bf16");
  }
  {
    WeightsCall call;
    Tensor q(DType::F64, {2, 5, 8, 16});
    Tensor k(DType::F64, {2, 7, 4, 16});
    call.inputs.q = q;
    call.inputs.k = k;
    refuses_weights<DTypeError>(call, "f64");
  }
}

}  // namespace
}  // namespace mha::test
