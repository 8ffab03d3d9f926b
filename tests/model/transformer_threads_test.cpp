// The encoder on several threads: no number of them changes a bit, and one model serves several callers. Runs under the thread sanitizer
// too, so nothing here may use the default executor.
#include <gtest/gtest.h>

#include <thread>

#include "mha/model/transformer.h"
#include "model/encoder_case.h"
#include "support/executors.h"
#include "support/isa_test.h"
#include "support/near.h"

namespace mha::test {
namespace {

class TransformerThreads : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, TransformerThreads, testing::ValuesIn(all_isas()), isa_name);

TEST_P(TransformerThreads, ThreadsChangeNothing) {
  const Transformer model = random_model(128, 4, 512, 2).load();
  const std::vector<Index> ids = some_ids(8 * 40, model.config().vocabulary, 3);
  const std::vector<Index> lengths = {40, 3, 40, 17, 0, 29, 40, 40};
  const TransformerInputs inputs{.ids = ids, .batch = 8, .lengths = lengths};
  Workspace serial(serial_executor());
  const Tensor expected = hidden_states(model, inputs, serial);
  for (const int count : {1, 2, 7}) {
    ThreadExecutor threads(count);
    Workspace workspace(threads.executor());
    EXPECT_TRUE(bitwise_equal(hidden_states(model, inputs, workspace), expected)) << count << " threads";
    Workspace backward(backward_executor(count));
    EXPECT_TRUE(bitwise_equal(hidden_states(model, inputs, backward), expected)) << count << " workers, last task first";
  }
}

TEST(TransformerOnThreads, DefaultModel) {
  const std::string folder = default_model_folder();
  if (folder.empty()) GTEST_SKIP() << "the default model is not there: set MHA_TEST_MODEL or run the set-up";
  const Transformer model = Transformer::load(folder);
  const std::vector<Index> ids = golden_numbers(SafetensorsFile(test_data("encoder_minilm.safetensors")), "long.ids");
  Workspace serial(serial_executor());
  const Tensor expected = hidden_states(model, {.ids = ids}, serial);
  for (const int count : {1, 2, 7}) {
    ThreadExecutor threads(count);
    Workspace workspace(threads.executor());
    EXPECT_TRUE(bitwise_equal(hidden_states(model, {.ids = ids}, workspace), expected)) << count << " threads";
  }
}

TEST(TransformerOnThreads, OneModelServesSeveralThreads) {
  const Transformer model = Transformer::load(test_data("tiny_bert"));
  const std::vector<Index> ids = some_ids(40, 50, 4);
  Workspace serial(serial_executor());
  const Tensor expected = hidden_states(model, {.ids = ids}, serial);
  std::vector<Tensor> results(4);
  std::vector<std::thread> threads;
  for (Tensor& result : results) {
    threads.emplace_back([&] {
      Workspace own(serial_executor());
      result = hidden_states(model, {.ids = ids}, own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Tensor& result : results) EXPECT_TRUE(bitwise_equal(result, expected));
}

}  // namespace
}  // namespace mha::test
