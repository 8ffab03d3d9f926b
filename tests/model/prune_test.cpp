// Models whose heads were removed: they give the bits of the whole model with those heads masked, and show hooks the heads by their old
// numbers; and the writer of such folders.
#include "mha/model/prune.h"

#include <gtest/gtest.h>

#include <limits>

#include "mha/attention.h"
#include "mha/error.h"
#include "mha/model/transformer.h"
#include "model/encoder_case.h"
#include "support/errors.h"
#include "support/isa_test.h"
#include "support/near.h"

namespace mha::test {
namespace {

using Removed = std::map<Index, std::vector<Index>>;

Transformer without(const std::string& folder, const Removed& removed) {
  const TempFolder out;
  save_without_heads(folder, out.file("pruned"), removed);
  return Transformer::load(out.file("pruned"));
}

/// A hook that zeroes the heads, then calls `then`.
LayerHook masking(const Removed& removed, const LayerHook& then = {}) {
  return [removed, then](Index layer, const MhaTrace& trace) {
    if (const auto lost = removed.find(layer); lost != removed.end()) {
      for (const Index head : lost->second) {
        const Tensor zeros(DType::F32, {trace.head_out.size(0), trace.head_out.size(1), 1, trace.head_out.size(3)});
        copy(zeros, trace.head_out.slice(2, head, head + 1));
      }
    }
    if (then) then(layer, trace);
  };
}

Tensor run(const Transformer& model, const TransformerInputs& inputs, const LayerHook& hook = {}) {
  Workspace workspace;
  Tensor hidden(DType::F32, {inputs.batch, static_cast<Index>(inputs.ids.size()) / inputs.batch, model.config().d_model});
  model.forward(inputs, hidden, workspace, hook);
  return hidden;
}

const Removed kCases[] = {
    {{0, {1}}}, {{0, {2, 0}}, {1, {3}}}, {{1, {0, 1, 2, 3}}}, {{0, {0, 1, 2, 3}}, {1, {1, 2}}}, {{0, {0, 1, 2, 3}}, {1, {0, 1, 2, 3}}}};

class Prune : public IsaTest {};

TEST_P(Prune, GivesTheBitsOfTheMaskedModel) {
  for (const char* const folder : {"tiny_bert", "tiny_distilbert"}) {
    const Transformer whole = Transformer::load(test_data(folder));
    const std::vector<Index> ids = some_ids(22, whole.config().vocabulary, 1);
    const std::vector<Index> lengths = {11, 7};
    Tensor allowed(DType::Bool, {1, 4, 11, 11});  // another table for every head
    for (Index i = 0; i < 4 * 11 * 11; ++i) allowed.data<bool>()[i] = i % 11 == 0 || i * i % 7 < 4;
    for (const Removed& removed : kCases) {
      const Transformer pruned = without(test_data(folder), removed);
      for (const TransformerInputs& inputs : {TransformerInputs{.ids = ids}, TransformerInputs{.ids = ids, .batch = 2, .lengths = lengths},
                                              TransformerInputs{.ids = ids, .batch = 2, .allowed = allowed, .temperature = 0.5F}}) {
        const Tensor masked = run(whole, inputs, masking(removed));
        EXPECT_TRUE(bitwise_equal(run(pruned, inputs), masked));
        EXPECT_FALSE(bitwise_equal(run(whole, inputs), masked)) << "a mask that changes nothing proves nothing";
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Isa, Prune, testing::ValuesIn(all_isas()), isa_name);

struct Seen {
  Tensor q, k, v, lse, out, max_score, max_key, entropy, chosen_weight;
  Tensor weights;  // [heads, length, length] of the second text
};

Tensor copied(const ConstTensorView& view) {
  Tensor tensor(view.dtype, view.shape);
  copy(view, tensor);
  return tensor;
}

/// What hooks see, layer by layer.
std::vector<Seen> seen(const Transformer& model, const TransformerInputs& inputs, const Removed& masked) {
  std::vector<Seen> layers;
  run(model, inputs, masking(masked, [&](Index, const MhaTrace& trace) {
        const RowStatistics& s = trace.statistics;
        Seen& layer = layers.emplace_back(Seen{copied(trace.q),
                                               copied(trace.k),
                                               copied(trace.v),
                                               copied(trace.lse),
                                               copied(trace.head_out),
                                               copied(s.max_score),
                                               copied(s.max_key),
                                               copied(s.entropy),
                                               copied(s.chosen_weight),
                                               {}});
        const Index heads = trace.q.size(2);
        const Index length = trace.q.size(1);
        layer.weights = Tensor(DType::F32, {heads, length, length});
        Workspace workspace;
        for (Index head = 0; head < heads; ++head) {
          const TensorView table = layer.weights.view().slice(0, head, head + 1).reshape({length, length});
          attention_weights(trace.spec, {.q = trace.q, .k = trace.k, .v = {}, .allowed = trace.allowed, .kv_lengths = trace.kv_lengths},
                            trace.lse, {.batch = 1, .head = head, .queries = {0, length}, .keys = {0, length}}, table, workspace);
        }
        EXPECT_NEAR(trace.spec.scale.value(), 2.0 / std::sqrt(8.0), 1e-12);
      }));
  return layers;
}

TEST(PruneTest, HooksSeeAllHeadsByTheirOldNumbers) {
  const Transformer whole = Transformer::load(test_data("tiny_bert"));
  const std::vector<Index> ids = some_ids(22, whole.config().vocabulary, 1);
  const std::vector<Index> lengths = {11, 7};
  Tensor chosen(DType::Bool, {1, 11});
  chosen.data<bool>()[0] = true;
  const TransformerInputs inputs{.ids = ids, .batch = 2, .lengths = lengths, .temperature = 0.5F, .statistics = true, .chosen = chosen};
  const Removed more = {{1, {2}}};  // zeroed by the hook besides
  for (const Removed& removed : kCases) {
    Removed all = removed;
    all[1].push_back(2);
    const std::vector<Seen> expected = seen(whole, inputs, all);
    const Transformer pruned = without(test_data("tiny_bert"), removed);
    const std::vector<Seen> got = seen(pruned, inputs, more);
    ASSERT_EQ(got.size(), 2U);
    for (std::size_t layer = 0; layer < 2; ++layer) {
      const auto head_of = [](const Tensor& tensor, int axis, Index head) { return tensor.view().slice(axis, head, head + 1); };
      for (Index head = 0; head < 4; ++head) {
        const bool kept = pruned.config().has_head(static_cast<Index>(layer), head);
        const auto all_are = [&](Tensor Seen::* tensor, int axis, double absent) {
          if (kept) {
            EXPECT_TRUE(bitwise_equal(head_of(got[layer].*tensor, axis, head), head_of(expected[layer].*tensor, axis, head)));
          } else {
            for (const double value : elements(head_of(got[layer].*tensor, axis, head))) EXPECT_EQ(value, absent);
          }
        };
        for (Tensor Seen::* rows : {&Seen::q, &Seen::k, &Seen::v, &Seen::out}) all_are(rows, 2, 0);
        all_are(&Seen::lse, 1, std::numeric_limits<double>::infinity());
        all_are(&Seen::max_score, 1, -std::numeric_limits<double>::infinity());
        all_are(&Seen::max_key, 1, -1);
        all_are(&Seen::entropy, 1, 0);
        all_are(&Seen::chosen_weight, 1, 0);
        all_are(&Seen::weights, 0, 0);
      }
    }
    EXPECT_TRUE(bitwise_equal(run(pruned, inputs, masking(more)), run(whole, inputs, masking(all)))) << "what a hook writes is read";
  }
}

TEST(PruneTest, TheConfigAndTheOutputProjectionTellWhatIsLeft) {
  const Transformer whole = Transformer::load(test_data("tiny_bert"));
  const Transformer pruned = without(test_data("tiny_bert"), {{0, {2, 0, 2}}, {1, {}}});
  EXPECT_EQ(whole.config().pruned_heads, Removed());
  EXPECT_EQ(pruned.config().pruned_heads, (Removed{{0, {0, 2}}}));
  EXPECT_EQ(pruned.config().heads_of(0), (std::vector<Index>{1, 3}));
  EXPECT_EQ(pruned.config().heads_of(1), (std::vector<Index>{0, 1, 2, 3}));
  EXPECT_TRUE(mentions(text_of<ShapeError>([&] { pruned.config().has_head(2, 0); }), "layer is 2"));
  EXPECT_TRUE(mentions(text_of<ShapeError>([&] { pruned.config().has_head(0, 4); }), "head is 4"));
  EXPECT_TRUE(bitwise_equal(pruned.output_projection(1), whole.output_projection(1)));
  for (Index head = 0; head < 4; ++head) {
    const ConstTensorView columns = pruned.output_projection(0).slice(1, head * 8, head * 8 + 8);
    const ConstTensorView before = whole.output_projection(0).slice(1, head * 8, head * 8 + 8);
    EXPECT_TRUE(bitwise_equal(columns, head % 2 == 1 ? before : Tensor(DType::F32, {32, 8}).view()));
  }
}

TEST(PruneTest, MoreCanGoLater) {
  const TempFolder out;
  save_without_heads(test_data("tiny_bert"), out.file("a"), {{0, {1}}});
  save_without_heads(out.file("a"), out.file("b"), {{0, {3, 1}}, {1, {0}}});
  save_without_heads(test_data("tiny_bert"), out.file("at_once"), {{0, {1, 3}}, {1, {0}}});
  EXPECT_EQ(read_bytes(out.file("b/model.safetensors")), read_bytes(out.file("at_once/model.safetensors")));
  EXPECT_EQ(read_bytes(out.file("b/config.json")), read_bytes(out.file("at_once/config.json")));
  EXPECT_LT(read_bytes(out.file("b/model.safetensors")).size(), read_bytes(out.file("a/model.safetensors")).size());
}

TEST(PruneTest, KeepsNamesStorageAndTheTokenizer) {
  const TempFolder folder;
  ModelFiles files = ModelFiles::read(test_data("tiny_bert"));
  std::map<std::string, Tensor> renamed;
  for (auto& [name, tensor] : files.tensors) renamed["bert." + name] = converted(tensor, DType::Bf16);
  renamed["cls.bias"] = Tensor(DType::F32, {3});
  files.tensors = std::move(renamed);
  files.write(folder);
  write_text(folder.file("tokenizer.json"), "{}");
  write_text(folder.file("pytorch_model.bin"), "not to be copied");
  save_without_heads(folder.path(), folder.file("out/"), {{1, {1}}});
  const SafetensorsFile before(folder.file("model.safetensors"));
  const SafetensorsFile after(folder.file("out/model.safetensors"));
  EXPECT_EQ(after.names(), before.names());
  EXPECT_EQ(after.info("bert.encoder.layer.1.attention.self.key.weight").dtype, "BF16");
  EXPECT_EQ(after.info("bert.encoder.layer.1.attention.output.dense.weight").shape, (std::vector<Index>{32, 24}));
  EXPECT_EQ(read_bytes(folder.file("out/tokenizer.json")), "{}");
  std::size_t files_there = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.file("out"))) files_there += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(files_there, 3U);
}

TEST(PruneTest, WritesAllOrNothing) {
  const TempFolder out;
  const auto entries = [&] { return std::distance(std::filesystem::directory_iterator(out.path()), {}); };
  const auto refused = [&]<class Kind>(Kind*, const std::string& from, const std::string& to, const Removed& removed) {
    return text_of<Kind>([&] { save_without_heads(from, to, removed); });
  };
  IoError* const io = nullptr;
  ShapeError* const shape = nullptr;
  EXPECT_TRUE(mentions(refused(shape, test_data("tiny_bert"), out.file("a"), {{0, {4}}}), "head is 4"));
  EXPECT_TRUE(mentions(refused(shape, test_data("tiny_bert"), out.file("a"), {{2, {0}}}), "layer is 2"));
  EXPECT_TRUE(mentions(refused(io, out.file("none"), out.file("a"), {}), "none"));
  EXPECT_TRUE(mentions(refused(io, test_data("tiny_bert"), out.file("no/such/place"), {}), "no/such/place"));
  EXPECT_TRUE(mentions(refused(io, test_data("tiny_bert"), "", {}), "no name"));
  EXPECT_EQ(entries(), 0);
  write_text(out.file("file"), "mine");
  std::filesystem::create_directory(out.file("full"));
  write_text(out.file("full/config.json"), "mine");
  for (const char* const there : {"file", "full", "full/"}) {
    EXPECT_TRUE(mentions(refused(io, test_data("tiny_bert"), out.file(there), {{0, {1}}}), "is there already"));
  }
  EXPECT_TRUE(mentions(refused(io, out.path(), out.path(), {}), "config.json"));
  EXPECT_EQ(read_bytes(out.file("file")) + read_bytes(out.file("full/config.json")), "minemine");
  EXPECT_EQ(entries(), 2);
  std::filesystem::create_directory(out.file("empty"));
  save_without_heads(test_data("tiny_bert"), out.file("empty"), {{0, {1}}});
  EXPECT_EQ(Transformer::load(out.file("empty")).config().heads_of(0).size(), 3U);
  EXPECT_EQ(entries(), 3);
}

TEST(PruneTest, ATableOfAllowedPairsIsOfAllHeadsOrOfNone) {
  const Transformer pruned = without(test_data("tiny_bert"), {{0, {1}}});
  const std::vector<Index> ids = some_ids(5, 50, 1);
  const Tensor allowed(DType::Bool, {1, 3, 5, 5});
  EXPECT_TRUE(mentions(text_of<ShapeError>([&] { run(pruned, {.ids = ids, .allowed = allowed}); }), "[1, 3, 5, 5]", "4 heads"));
}

}  // namespace
}  // namespace mha::test
