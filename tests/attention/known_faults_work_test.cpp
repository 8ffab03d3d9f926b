// Faults that other implementations had with caches, partial results, packed batches, offsets and the sharing of work, as far as they
// concern a library that keeps no cache of its own: the caller's tensors are the cache. One test per line of the project's list of known
// faults, named after it.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "attention/known_faults.h"
#include "support/executors.h"
#include "support/guard.h"

namespace mha::test {
namespace {

class KnownFaultsWork : public KnownFaults {};
INSTANTIATE_TEST_SUITE_P(Isa, KnownFaultsWork, testing::ValuesIn(all_isas()), isa_name);

const AttentionSpec kDecode = {.mask = causal(), .align = Align::BottomRight};

/// The mask holds while earlier keys are there already: prefill in chunks and token by token say what one call says.
TEST_P(KnownFaultsWork, A23_A76_PrefillInChunksAndTokenByToken) {
  constexpr Index kLength = 150;
  for (const DType dtype : {DType::F32, DType::Bf16, DType::F16}) {
    const Tensor q = normal_tensor(dtype, {1, kLength, 4, 16}, 1);
    const Tensor k = normal_tensor(dtype, {1, kLength, 2, 16}, 2);
    const Tensor v = normal_tensor(dtype, {1, kLength, 2, 16}, 3);
    const Said whole = forward({.mask = causal()}, {.q = q, .k = k, .v = v});
    for (const Index chunk : {1, 7, 64}) {
      for (Index t = 0; t < kLength; t += chunk) {
        const Index end = std::min(t + chunk, kLength);
        const Said part =
            forward(kDecode, {.q = q.view().slice(1, t, end), .k = k.view().slice(1, 0, end), .v = v.view().slice(1, 0, end)});
        ASSERT_LE(relative_error(part.out.view(), out_rows(whole, t, end)), forward_tolerance(dtype)) << name_of(dtype) << " from " << t;
        for (Index i = t; i + 1 < end; ++i) ASSERT_EQ(element(part.weights.view(), 0, 1, i - t, i + 1), 0) << "a future key";
      }
    }
  }
}

/// What a ring of W slots holds is enough for a window of W keys, at any position: the window goes by absolute positions.
TEST_P(KnownFaultsWork, A25_TheLastKeysAreEnoughForAWindow) {
  constexpr Index kWindow = 20;
  const Tensor x = normal_tensor(DType::F32, {1, 100, 2, 8}, 1);
  const AttentionSpec spec = {.mask = causal() & window(kWindow - 1), .align = Align::BottomRight};
  const Said whole = forward(spec, {.q = x, .k = x, .v = x});  // a prefill longer than the window
  for (Index t = 0; t < 100; ++t) {
    const Index first = std::max<Index>(0, t + 1 - kWindow);
    const ConstTensorView ring = x.view().slice(1, first, t + 1);
    const Said one = forward(spec, {.q = x.view().slice(1, t, t + 1), .k = ring, .v = ring});
    ASSERT_LE(relative_error(one.out.view(), out_rows(whole, t, t + 1)), forward_tolerance(DType::F32)) << t;
  }
}

/// Sequences of a packed batch, some without queries: each writes its own rows of out and no others.
TEST_P(KnownFaultsWork, A28_PackedSequencesWithoutQueries) {
  const std::vector<Index> q_starts = {0, 0, 38, 64, 64};
  const std::vector<Index> k_starts = {0, 80, 133, 160, 256};
  const Tensor q = normal_tensor(DType::F32, {1, 64, 4, 256}, 1);
  const Tensor k = normal_tensor(DType::F32, {1, 256, 1, 256}, 2);
  Tensor out = filled_tensor(DType::F32, {1, 64, 4, 256}, kMark);
  Workspace workspace(serial_executor());
  for (std::size_t i = 0; i + 1 < q_starts.size(); ++i) {
    const ConstTensorView rows = q.view().slice(1, q_starts[i], q_starts[i + 1]);
    const ConstTensorView keys = k.view().slice(1, k_starts[i], k_starts[i + 1]);
    const Tensor before = out.clone();
    attention_forward(kDecode, {.q = rows, .k = keys, .v = keys}, {.out = out.view().slice(1, q_starts[i], q_starts[i + 1])}, workspace);
    EXPECT_TRUE(bitwise_equal(out.view().slice(1, 0, q_starts[i]), before.view().slice(1, 0, q_starts[i])));
    EXPECT_TRUE(bitwise_equal(out.view().slice(1, q_starts[i + 1], 64), before.view().slice(1, q_starts[i + 1], 64)));
    const Said alone = forward(kDecode, {.q = rows, .k = keys, .v = keys});
    EXPECT_TRUE(bitwise_equal(out.view().slice(1, q_starts[i], q_starts[i + 1]), alone.out.view()));
  }
  EXPECT_TRUE(all_finite(out.view()));
}

/// The last three of 17,477 tokens of 16 samples, 7,680 numbers a token: the last sample's lie beyond 2^31 elements.
TEST_P(KnownFaultsWork, A37_SamplesBeyond32BitOffsets) {
  constexpr Index kTokens = 17'477;
  const Dims strides = {kTokens * 7680, 7680, 128, 1};
  const Reserved memory[2] = {Reserved(static_cast<std::size_t>(16 * strides[0]) * sizeof(float)),
                              Reserved(static_cast<std::size_t>(16 * strides[0]) * sizeof(float))};
  if (memory[0].data() == nullptr || memory[1].data() == nullptr) GTEST_SKIP() << "this system gives no 17 GB of address space";
  const auto last_tokens = [&](const Reserved& from) {
    return TensorView(from.data(), DType::F32, {16, kTokens, 60, 128}, strides)
        .slice(1, kTokens - 3, kTokens)
        .slice(2, 57, 60)
        .slice(3, 0, 4);
  };
  const TensorView x = last_tokens(memory[0]);
  const TensorView out = last_tokens(memory[1]);
  fill_normal(x, 1);
  Workspace workspace(serial_executor());
  attention_forward({.mask = causal()}, {.q = x, .k = x, .v = x}, {.out = out}, workspace);
  for (Index b = 0; b < 16; ++b) {
    Tensor near(DType::F32, {1, 3, 3, 4});
    copy(x.slice(0, b, b + 1), near);
    const Said alone = forward({.mask = causal()}, {.q = near, .k = near, .v = near});
    EXPECT_TRUE(bitwise_equal(out.slice(0, b, b + 1), alone.out.view())) << "sample " << b;
  }
}

/// softmax over keys in two parts from what each part says of itself; the merging is this test's own.
Tensor merged(const Said& a, const Said& b) {
  Tensor out(DType::F64, a.out.shape());
  for_each_position(out.shape(), [&](Index i, Index q, Index h, Index d) {
    const double lse_a = element(a.lse.view(), i, h, q);
    const double lse_b = element(b.lse.view(), i, h, q);
    const double max = std::max(lse_a, lse_b);
    const double share_a = max == -kInfinity ? 0 : std::exp(lse_a - max);
    const double share_b = max == -kInfinity ? 0 : std::exp(lse_b - max);
    const double sum = element(a.out.view(), i, q, h, d) * share_a + element(b.out.view(), i, q, h, d) * share_b;
    set_element(out.view(), i, q, h, d, share_a + share_b == 0 ? 0 : sum / (share_a + share_b));
  });
  return out;
}

/// An empty part says (0, -inf), so that merging it changes nothing; lse is a natural logarithm, so that parts merge at all.
TEST_P(KnownFaultsWork, A42_PartialResultsSayWhatAMergeNeeds) {
  const Tensor q = normal_tensor(DType::F32, {2, 5, 4, 8}, 1);
  const Tensor k = normal_tensor(DType::F32, {2, 30, 2, 8}, 2);
  const Tensor v = normal_tensor(DType::F32, {2, 30, 2, 8}, 3);
  Tensor allowed = filled_tensor(DType::Bool, {1, 1, 5, 30}, 1);
  for (Index j = 0; j < 30; ++j) set_element(allowed.view(), 0, 0, 4, j, 0);   // row 4 sees nothing in either part
  for (Index j = 0; j < 12; ++j) set_element(allowed.view(), 0, 0, 2, j, 0);   // row 2 nothing in the first
  for (Index j = 12; j < 30; ++j) set_element(allowed.view(), 0, 0, 3, j, 0);  // row 3 nothing in the second
  const auto part = [&](Index lo, Index hi) {
    return forward({},
                   {.q = q, .k = k.view().slice(1, lo, hi), .v = v.view().slice(1, lo, hi), .allowed = allowed.view().slice(3, lo, hi)});
  };
  const Said whole = part(0, 30);
  for (const Index cut : {0, 12, 30}) {  // at 0 and 30 one part has no keys at all
    const Said first = part(0, cut);
    const Said second = part(cut, 30);
    EXPECT_LE(relative_error(whole.out.view(), merged(first, second).view()), 2 * forward_tolerance(DType::F32)) << cut;
    for (const Said* said : {&first, &second}) {
      EXPECT_EQ(element(said->lse.view(), 1, 3, 4), -kInfinity);
      EXPECT_TRUE(all_zero(out_rows(*said, 4, 5)));
    }
  }
}

/// A key and a value of zeros beside the others is a sink of logit 0: it takes a share, and queries still matter.
TEST_P(KnownFaultsWork, A45_AZeroKeyIsASinkOfLogitZero) {
  const Tensor q = normal_tensor(DType::F32, {1, 6, 2, 8}, 1);
  Tensor k = normal_tensor(DType::F32, {1, 7, 2, 8}, 2);
  Tensor v = normal_tensor(DType::F32, {1, 7, 2, 8}, 3);
  fill(k.view().slice(1, 0, 1), 0);
  fill(v.view().slice(1, 0, 1), 0);
  const Said appended = forward({.mask = causal(), .align = Align::BottomRight}, {.q = q, .k = k, .v = v});
  const Said sink =
      forward({.mask = causal(), .sink_logits = {0, 0}}, {.q = q, .k = k.view().slice(1, 1, 7), .v = v.view().slice(1, 1, 7)});
  EXPECT_LE(relative_error(sink.out.view(), appended.out.view()), forward_tolerance(DType::F32));
}

TEST_P(KnownFaultsWork, A67_InputsAreNeverWritten) {
  const std::vector<Index> lengths = {9, 30};
  for (const DType dtype : {DType::F32, DType::Bf16, DType::F64}) {
    const Tensor q = normal_tensor(dtype, {2, 5, 4, 8}, 1);
    const Tensor k = normal_tensor(dtype, {2, 30, 2, 8}, 2);
    const Tensor v = normal_tensor(dtype, {2, 30, 2, 8}, 3);
    const Tensor bias = normal_tensor(DType::F32, {1, 4, 5, 30}, 4);
    const Tensor allowed = filled_tensor(DType::Bool, {1, 1, 5, 30}, 1);
    const Tensor* const inputs[] = {&q, &k, &v, &bias, &allowed};
    std::vector<Tensor> before;
    for (const Tensor* input : inputs) before.push_back(input->clone());
    forward({.bias = DenseBias{bias}, .softcap = 4.0F, .dropout = {0.2F, 1}},
            {.q = q, .k = k, .v = v, .allowed = allowed, .kv_lengths = lengths});
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(bitwise_equal(inputs[i]->view(), before[i].view())) << i;
  }
}

/// Threads that know when they are already running a body, and how wide the calls were.
class WatchingExecutor {
 public:
  explicit WatchingExecutor(int count) : threads_(count), inner_(threads_.executor()) {}
  Executor executor() { return {.parallel_for = run, .context = this, .concurrency = inner_.concurrency}; }
  int nested() const { return nested_; }
  Index widest() const { return widest_; }

 private:
  struct Call {
    void (*body)(void*, Index);
    void* state;
  };
  static void run(void* context, Index n, void (*body)(void*, Index), void* state) {
    auto* self = static_cast<WatchingExecutor*>(context);
    if (inside_) ++self->nested_;
    self->widest_ = std::max(self->widest_, n);
    Call call{body, state};
    const auto watched = [](void* opaque, Index i) {
      inside_ = true;
      static_cast<Call*>(opaque)->body(static_cast<Call*>(opaque)->state, i);
      inside_ = false;
    };
    self->inner_.parallel_for(self->inner_.context, n, watched, &call);
  }

  static thread_local bool inside_;
  ThreadExecutor threads_;
  Executor inner_;
  std::atomic<int> nested_ = 0;
  Index widest_ = 0;  // calls that are not nested come from one thread
};
thread_local bool WatchingExecutor::inside_ = false;

TEST_P(KnownFaultsWork, A74_NoParallelLoopInsideAnother) {
  const Index length = current_isa() == "reference" ? 40 : 300;
  const Tensor x = normal_tensor(DType::F32, {1, length, 8, 64}, 1);
  WatchingExecutor watching(4);
  Workspace workspace(watching.executor());
  Tensor out(DType::F32, x.shape());
  Tensor weights(DType::F32, {1, 8, length, length});
  attention_forward({.mask = causal()}, {.q = x, .k = x, .v = x}, {.out = out, .weights = weights}, workspace);
  EXPECT_EQ(watching.nested(), 0);
  if (current_isa() != "reference") {
    EXPECT_EQ(watching.widest(), 4) << "heads are shared out";
  }
}

/// One query over many keys is enough work to share: its cost counts heads, keys and both dims.
TEST_P(KnownFaultsWork, A75_OneQueryIsSharedOverHeads) {
  if (current_isa() == "reference") GTEST_SKIP() << "the reference is serial";
  const Tensor q = normal_tensor(DType::F32, {1, 1, 16, 64}, 1);
  const Tensor k = normal_tensor(DType::F32, {1, 2048, 8, 64}, 2);
  WatchingExecutor watching(4);
  Workspace workspace(watching.executor());
  Tensor out(DType::F32, q.shape());
  attention_forward(kDecode, {.q = q, .k = k, .v = k}, {.out = out}, workspace);
  EXPECT_EQ(watching.widest(), 4);
  EXPECT_TRUE(bitwise_equal(out.view(), forward(kDecode, {.q = q, .k = k, .v = k}).out.view()));
}

}  // namespace
}  // namespace mha::test
