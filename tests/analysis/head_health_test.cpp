// Health of heads: heads built to be uniform, to look at one key or at key 0, to hold NaN or infinities; random ones and a model's against
// plain sums over tables of weights that are held; padding, masks, texts that are too long.
#include "mha/analysis/head_health.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "analysis/tiny_tokenizer.h"
#include "mha/error.h"
#include "model/encoder_case.h"
#include "support/errors.h"
#include "support/problem.h"
#include "support/row_statistics.h"

namespace mha::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// Attention of one batch whose trace, weights and statistics are held.
struct Traced {
  Traced(const AttentionSpec& wanted, const AttentionInputs& in)
      : spec(wanted),
        inputs(in),
        out(DType::F32, {in.q.size(0), in.q.size(1), in.q.size(2), in.v.size(3)}),
        lse(DType::F32, rows()),
        weights(DType::F32, {in.q.size(0), in.q.size(2), in.q.size(1), in.k.size(1)}),
        chosen(DType::Bool, {1, in.k.size(1)}),
        statistics(rows(), DType::F32, chosen) {
    for (Index key = 1; key < in.k.size(1); key += 3) set_element(chosen, 0, key, 0, 0, 1);
    Workspace workspace(serial_executor());
    attention_forward(spec, inputs, {.out = out, .lse = lse, .weights = weights, .statistics = statistics.asked}, workspace);
  }
  Dims rows() const { return {inputs.q.size(0), inputs.q.size(2), inputs.q.size(1)}; }
  MhaTrace trace() {
    return {.spec = spec,
            .q = inputs.q,
            .k = inputs.k,
            .v = inputs.v,
            .lse = lse,
            .head_out = out,
            .kv_lengths = inputs.kv_lengths,
            .allowed = inputs.allowed,
            .statistics = statistics.asked};
  }
  AttentionSpec spec;
  AttentionInputs inputs;
  Tensor out, lse, weights, chosen;
  KeptStatistics statistics;
};

/// One text of `length` tokens; head h gives key seen(h, q) a score of `score`, all others 0. Values are 1.
struct Pointing {
  template <class Seen>
  Pointing(Index length, Index heads, double score, Seen&& seen)
      : q(DType::F32, {1, length, heads, length}), k(DType::F32, {1, length, heads, length}), v(DType::F32, {1, length, heads, 2}) {
    fill(v, 1);
    for_each_position({length, heads}, [&](Index i, Index h, Index, Index) {
      set_element(k, 0, i, h, i, 1);
      if (seen(h, i) >= 0) set_element(q, 0, i, h, seen(h, i), score);
    });
  }
  AttentionInputs inputs() const { return {.q = q, .k = k, .v = v}; }
  Tensor q, k, v;
};

TEST(HeadHealth, OfHeadsBuiltToBeUniformOrToLookAtOneKey) {
  constexpr Index kLength = 30;
  const Pointing heads(kLength, 3, 60, [](Index h, Index q) { return h == 0 ? -1 : h == 1 ? (q + 1) % kLength : 0; });
  Traced traced({.scale = 1.0}, heads.inputs());
  HealthWatch watch(2, 3);
  watch.add(1, traced.trace());
  const double few = 64 * unit_roundoff(DType::F32);
  const HeadHealth uniform = watch.head({1, 0});
  const HeadHealth next = watch.head({1, 1});
  const HeadHealth sink = watch.head({1, 2});
  EXPECT_EQ(uniform.rows, kLength);
  EXPECT_EQ(uniform.max_logit, 0);
  EXPECT_NEAR(uniform.entropy, std::log(30.0), few);
  EXPECT_NEAR(uniform.sink, 1.0 / 30, few);
  EXPECT_NEAR(uniform.special, 10.0 / 30, few);
  EXPECT_EQ((std::vector<double>{uniform.uniform, uniform.one_key, uniform.dead, uniform.collapsed}), (std::vector<double>{1, 0, 1, 0}));
  for (const HeadHealth& head : {next, sink}) {
    EXPECT_EQ(head.max_logit, 60);
    EXPECT_NEAR(head.entropy, 0, 1e-6);  // the others weigh exp(-60)
    EXPECT_EQ((std::vector<double>{head.uniform, head.one_key, head.dead, head.collapsed}), (std::vector<double>{0, 1, 1, 1}));
    EXPECT_EQ(head.nonfinite_rows, 0);
  }
  EXPECT_NEAR(next.sink, 1.0 / 30, few);
  EXPECT_NEAR(next.special, 10.0 / 30, few);
  EXPECT_NEAR(sink.sink, 1, few);
  EXPECT_NEAR(sink.special, 0, few);
  const HeadHealth nothing = watch.head({0, 0});
  EXPECT_EQ(nothing.rows, 0);
  EXPECT_EQ(nothing.max_logit, -kInf);
  EXPECT_TRUE(std::isnan(nothing.entropy) && std::isnan(nothing.dead));
}

/// A score of ln 2.7 above 29 others of 0: weights and entropy are known, and lie on either side of the rules as these are set.
TEST(HeadHealth, RulesDecide) {
  const double score = std::log(2.7);
  const Pointing heads(30, 1, score, [](Index, Index) { return 4; });
  Traced traced({.scale = 1.0}, heads.inputs());
  const double largest = 2.7 / 31.7;
  const double share = (-largest * std::log(largest) + 29 / 31.7 * std::log(31.7)) / std::log(30.0);
  const auto judged = [&](const HealthRules& rules) {
    HealthWatch watch(1, 1, rules);
    watch.add(0, traced.trace());
    const HeadHealth head = watch.head({});
    return std::vector<double>{head.collapsed, head.uniform, head.one_key, head.dead};
  };
  EXPECT_EQ(judged({.collapsed = share - 1e-4, .uniform = share + 1e-4, .one_key = largest + 1e-4}), (std::vector<double>{0, 0, 0, 0}));
  EXPECT_EQ(judged({.collapsed = share + 1e-4, .uniform = share + 1e-4, .one_key = largest + 1e-4}), (std::vector<double>{1, 0, 0, 0}));
  EXPECT_EQ(judged({.collapsed = 0, .uniform = share - 1e-4, .one_key = largest + 1e-4}), (std::vector<double>{0, 1, 0, 1}));
  EXPECT_EQ(judged({.collapsed = 0, .uniform = share - 1e-4, .one_key = largest - 1e-4}), (std::vector<double>{0, 1, 1, 1}));
}

TEST(HeadHealth, NaNAndInfinitiesAreCountedAndLeftOutOfMeans) {
  Pointing heads(20, 4, 60, [](Index, Index) { return 3; });
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Index q : {0, 7, 8}) set_element(heads.q, 0, q, 0, 5, nan);  // head 0: three rows of NaN
  set_element(heads.q, 0, 11, 1, 3, 1e38);                                // head 1: one score overflows, its row is NaN
  set_element(heads.k, 0, 3, 1, 3, 1e10);
  for (const Index key : {3, 9}) set_element(heads.v, 0, key, 2, 1, kInf);  // head 2: weights are fine, every output is infinite
  Traced traced({.scale = 1.0}, heads.inputs());
  HealthWatch watch(1, 4);
  watch.add(0, traced.trace());
  const auto counts = [&](Index h) {
    const HeadHealth head = watch.head({0, h});
    return std::vector<Index>{head.rows, head.nan_rows, head.infinite_rows, head.nonfinite_rows};
  };
  EXPECT_EQ(counts(0), (std::vector<Index>{20, 3, 0, 3}));
  EXPECT_EQ(counts(1), (std::vector<Index>{20, 1, 1, 1}));
  EXPECT_EQ(counts(2), (std::vector<Index>{20, 0, 20, 20}));
  EXPECT_EQ(counts(3), (std::vector<Index>{20, 0, 0, 0}));
  EXPECT_EQ(watch.head({0, 1}).max_logit, kInf);
  EXPECT_EQ(watch.head({0, 0}).one_key, 1);
  EXPECT_NEAR(watch.head({0, 0}).entropy, 0, 1e-6);
  EXPECT_TRUE(std::isnan(watch.head({0, 2}).entropy)) << "no row is left";
}

/// The same by plain sums over weights that are held. `visible` says which pairs exist.
template <class Visible>
HeadHealth plain_health(const ConstTensorView& weights, const ConstTensorView& lse, const ConstTensorView& chosen, Index h,
                        Visible&& visible) {
  HeadHealth sum;
  double finite = 0, choosing = 0;
  for_each_position({lse.size(0), lse.size(2)}, [&](Index b, Index q, Index, Index) {
    double keys = 0;
    for (Index key = 0; key < weights.size(3); ++key) keys += visible(b, h, q, key) ? 1 : 0;
    if (keys == 0) return;
    const PlainRow row(weights, chosen, b, h, q);
    ++sum.rows;
    ++finite;
    sum.max_logit = std::max(sum.max_logit, std::log(row.largest) + element(lse, b, h, q));
    sum.entropy += row.entropy;
    sum.sink += element(weights, b, h, q, 0);
    sum.special += row.chosen;
    if (keys < 2) return;
    ++choosing;
    const HealthRules rules;
    const double share = row.entropy / std::log(keys);
    sum.collapsed += share < rules.collapsed ? 1 : 0;
    sum.uniform += share > rules.uniform ? 1 : 0;
    sum.one_key += row.largest > rules.one_key ? 1 : 0;
    sum.dead += share > rules.uniform || row.largest > rules.one_key ? 1 : 0;
  });
  for (double* value : {&sum.entropy, &sum.sink, &sum.special}) *value /= finite;
  for (double* value : {&sum.collapsed, &sum.uniform, &sum.one_key, &sum.dead}) *value /= choosing;
  return sum;
}

void expect_near(const HeadHealth& got, const HeadHealth& expected, double relative) {
  EXPECT_EQ(got.rows, expected.rows);
  EXPECT_EQ(got.nonfinite_rows, 0);
  EXPECT_NEAR(got.max_logit, expected.max_logit, relative);
  EXPECT_NEAR(got.entropy, expected.entropy, 2 * relative * (expected.entropy + 1));
  EXPECT_NEAR(got.sink, expected.sink, relative);
  EXPECT_NEAR(got.special, expected.special, relative);
  EXPECT_EQ(got.collapsed, expected.collapsed);
  EXPECT_EQ(got.uniform, expected.uniform);
  EXPECT_EQ(got.one_key, expected.one_key);
  EXPECT_EQ(got.dead, expected.dead);
}

/// Masks, a table of allowed pairs, lengths and groups, with scores from flat to sharp so that rows lie on both sides of every rule.
TEST(HeadHealth, OfRandomHeadsIsWhatTheirWeightsSay) {
  Problem problem = {.batch = 3, .q_len = 26, .kv_len = 26, .kv_heads = 2, .group = 2, .head_dim = 6, .seed = 11};
  Problem masked = problem;
  masked.mask = causal() & window(9);
  masked.allowed.present = true;
  Problem lengths = problem;
  lengths.align = Align::TopLeft;
  lengths.mask = chunk(4);
  lengths.kv_lengths = {26, 0, 7};
  for (const Problem& p : {problem, masked, lengths}) {
    const Instance instance(p);
    AttentionSpec flat = instance.spec();
    flat.scale = 0.0;  // every key that is seen weighs something, others 0
    const Traced seen(flat, instance.inputs());
    const auto visible = [&](Index b, Index h, Index q, Index key) { return element(seen.weights, b, h, q, key) > 0; };
    bool collapsed = false, dead = false;
    for (const double scale : {0.01, 1.0, 30.0}) {
      AttentionSpec spec = instance.spec();
      spec.scale = scale;
      Traced traced(spec, instance.inputs());
      HealthWatch watch(1, 4);
      watch.add(0, traced.trace());
      for (Index h = 0; h < 4; ++h) {
        const HeadHealth expected = plain_health(traced.weights, traced.lse, traced.chosen, h, visible);
        expect_near(watch.head({0, h}), expected, relative_of(traced.trace()));
        collapsed |= expected.collapsed > 0;
        dead |= expected.dead > 0 && expected.dead < 1;
      }
    }
    EXPECT_TRUE(collapsed && dead) << "the rules are not tried";
  }
}

TEST(HeadHealth, OfAModelIsWhatItsWeightsSay) {
  const Transformer model = Transformer::load(test_data("tiny_bert"));
  const Tokenizer tokenizer = tiny_tokenizer();
  Workspace workspace;
  HealthWatch watch(model.config().layers, model.config().heads);
  const std::string text = "the man saw a telescope . the astronomers saw the man";
  const WatchedText read = watch_text(model, tokenizer, text, watch, workspace);
  const Encoding encoding = tokenizer.encode(text);
  EXPECT_EQ(read.tokens, static_cast<Index>(encoding.size()));
  EXPECT_FALSE(read.cut);
  Tensor frame(DType::Bool, {1, read.tokens});
  set_element(frame, 0, 0, 0, 0, 1);
  set_element(frame, 0, read.tokens - 1, 0, 0, 1);
  std::vector<Tensor> lse;
  double relative = 0;
  const EncoderRun run = run_encoder(model, {.ids = encoding.ids}, workspace, [&](Index, const MhaTrace& trace) {
    lse.push_back(converted(trace.lse, DType::F32));
    relative = std::max(relative, relative_of(trace));
  });
  for (Index layer = 0; layer < model.config().layers; ++layer) {
    for (Index head = 0; head < model.config().heads; ++head) {
      const auto at = static_cast<std::size_t>(layer);
      const auto all = [](Index, Index, Index, Index) { return true; };
      expect_near(watch.head({layer, head}), plain_health(run.weights[at], lse[at], frame, head, all), relative);
    }
  }
}

/// The tiny model reads 40 tokens.
TEST(HeadHealth, TextsThatAreTooLongAreCutInsideTheirFrame) {
  const Transformer model = Transformer::load(test_data("tiny_bert"));
  const Tokenizer tokenizer = tiny_tokenizer();
  Workspace workspace;
  const auto repeated = [](int words) {
    std::string text;
    for (int i = 0; i < words; ++i) text += i % 3 == 0 ? "man " : "saw ";
    return text;
  };
  HealthWatch cut(model.config().layers, model.config().heads);
  HealthWatch whole(model.config().layers, model.config().heads);
  const WatchedText read = watch_text(model, tokenizer, repeated(100), cut, workspace);
  EXPECT_EQ(read.tokens, 40);
  EXPECT_TRUE(read.cut);
  const WatchedText fits = watch_text(model, tokenizer, repeated(38), whole, workspace);
  EXPECT_EQ(fits.tokens, 40);
  EXPECT_FALSE(fits.cut);
  for (Index head = 0; head < model.config().heads; ++head) {
    EXPECT_EQ(cut.head({1, head}).entropy, whole.head({1, head}).entropy);
    EXPECT_EQ(cut.head({1, head}).special, whole.head({1, head}).special);
  }
  for (const char* const text : {"", " \t "}) EXPECT_EQ(watch_text(model, tokenizer, text, whole, workspace).tokens, 0);
  EXPECT_EQ(whole.head({0, 0}).rows, 40);
  EXPECT_THROW(watch_text(model, tokenizer, "man \xff", whole, workspace), FormatError);
}

TEST(HeadHealth, WhatDoesNotFitIsRefused) {
  const Pointing heads(4, 2, 1, [](Index, Index) { return 0; });
  Traced traced({}, heads.inputs());
  MhaTrace without{.spec = traced.spec,
                   .q = heads.q,
                   .k = heads.k,
                   .v = heads.v,
                   .lse = traced.lse,
                   .head_out = traced.out,
                   .kv_lengths = {},
                   .allowed = {}};
  HealthWatch watch(3, 2);
  HealthWatch narrow(3, 1);
  EXPECT_TRUE(mentions(text_of<ShapeError>([&] { watch.add(3, traced.trace()); }), "layer is 3", "3 counted"));
  EXPECT_TRUE(mentions(text_of<ShapeError>([&] { narrow.add(0, traced.trace()); }), "2 heads", "1 are"));
  EXPECT_TRUE(mentions(text_of<ShapeError>([&] { watch.add(0, without); }), "statistics"));
  EXPECT_TRUE(mentions(text_of<ShapeError>([&] { watch.head({0, 2}); }), "head 2", "3 x 2"));
  EXPECT_TRUE(mentions(text_of<Error>([&] { HealthWatch(1, 1, {.uniform = 1.5}); }), "1.5"));
  const Transformer model = Transformer::load(test_data("tiny_bert"));
  Workspace workspace;
  EXPECT_TRUE(mentions(text_of<ShapeError>([&] { watch_text(model, tiny_tokenizer(), "man", watch, workspace); }), "3 x 2", "2 x 4"));
}

}  // namespace
}  // namespace mha::test
