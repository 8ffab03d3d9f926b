// The layer on several threads, for the thread sanitizer too: every Workspace here has an executor of std::threads or none.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "layer_case.h"
#include "nn/linear.h"
#include "support/executors.h"
#include "support/isa_test.h"
#include "support/near.h"

namespace mha::test {
namespace {

// Large enough that projections, attention and W_O are each worth a second thread (core::kWorthAThread).
const LayerCase kLarge = {.batch = 2,
                          .q_len = 70,
                          .d_model = 192,
                          .heads = 6,
                          .kv_heads = 2,
                          .head_dim = 32,
                          .key_width = 192,
                          .value_width = 192,
                          .mask = causal(),
                          .align = Align::TopLeft,
                          .kv_lengths = {70, 50}};

TEST(LayerThreads, SameBitsForOneTwoAndSeven) {
  const LayerInstance instance(kLarge);
  const MultiHeadAttention layer(instance.config(), instance.parameters().view());
  Workspace serial(serial_executor());
  const LayerResults expected = run_layer(layer, instance, serial);
  for (const int count : {2, 7}) {
    ThreadExecutor threads(count);
    Workspace workspace(threads.executor());
    const LayerResults got = run_layer(layer, instance, workspace);
    EXPECT_TRUE(bitwise_equal(got.y, expected.y)) << count;
    EXPECT_TRUE(bitwise_equal(got.weights, expected.weights)) << count;
    EXPECT_TRUE(bitwise_equal(got.q, expected.q)) << count << ": projections";
    EXPECT_TRUE(bitwise_equal(got.lse, expected.lse)) << count;
    EXPECT_TRUE(bitwise_equal(got.head_out, expected.head_out)) << count;
  }
}

TEST(LayerThreads, DropoutToo) {
  LayerCase c = kLarge;
  c.dropout = {0.3F, 5};
  c.training = true;
  const LayerInstance instance(c);
  const MultiHeadAttention layer(instance.config(), instance.parameters().view());
  Workspace serial(serial_executor());
  ThreadExecutor threads(7);
  Workspace workspace(threads.executor());
  EXPECT_TRUE(bitwise_equal(run_layer(layer, instance, workspace).y, run_layer(layer, instance, serial).y));
}

// One const layer, four callers at once, each with a workspace of its own.
TEST(LayerThreads, OneLayerManyCallers) {
  const LayerInstance instance(kLarge);
  const MultiHeadAttention layer(instance.config(), instance.parameters().view());
  const NaiveMultiHeadAttention naive(instance.config(), to_naive(instance.config(), instance.parameters().view()));
  Workspace own(serial_executor());
  const LayerResults expected = run_layer(layer, instance, own);
  const LayerResults expected_naive = run_layer(naive, instance, own);
  std::vector<LayerResults> results(4);
  std::vector<std::thread> callers;
  for (std::size_t i = 0; i < results.size(); ++i) {
    callers.emplace_back([&, i] {
      Workspace workspace(serial_executor());
      results[i] = i == 0 ? run_layer(naive, instance, workspace) : run_layer(layer, instance, workspace);
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(bitwise_equal(results[0].y, expected_naive.y));
  for (std::size_t i = 1; i < results.size(); ++i) EXPECT_TRUE(bitwise_equal(results[i].y, expected.y)) << i;
}

// Weights packed under one ISA, first used under another by many threads at once: all of them want the new form.
TEST(LayerThreads, RepackingIsShared) {
  Tensor w(DType::F32, {150, 64});
  fill_normal(w, 1);
  Tensor x(DType::F32, {20, 64});
  fill_normal(x, 2);
  for (const std::string& isa : supported_kernel_isas()) {
    const nn::PackedLinear linear(w, {}, "test");
    const IsaScope scope(isa);
    std::vector<Tensor> results;
    for (int i = 0; i < 4; ++i) results.emplace_back(DType::F32, Dims{20, 150});
    std::vector<std::thread> callers;
    for (Tensor& y : results) {
      callers.emplace_back([&] {
        Workspace workspace(serial_executor());
        linear.forward(x, y, workspace);
      });
    }
    for (std::thread& caller : callers) caller.join();
    for (const Tensor& y : results) EXPECT_TRUE(bitwise_equal(y, results[0]));
  }
}

}  // namespace
}  // namespace mha::test
