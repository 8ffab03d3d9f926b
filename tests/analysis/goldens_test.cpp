// Every measure of heads on the default model against NumPy (tools/make_analysis_goldens.py), which shares nothing with this library. How
// far our weights are from NumPy's is measured first; each measure may then be off by what that makes of it, times what the promise of the
// encoder (encoder_case.h) makes of values and outputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <numeric>
#include <set>

#include "mha/analysis/ablation.h"
#include "mha/analysis/distances.h"
#include "mha/analysis/head_health.h"
#include "mha/analysis/links.h"
#include "mha/analysis/measures.h"
#include "mha/analysis/norms.h"
#include "mha/analysis/relation.h"
#include "mha/analysis/repeated.h"
#include "mha/analysis/rollout.h"
#include "mha/analysis/similarity.h"
#include "mha/analysis/usual.h"
#include "model/encoder_case.h"
#include "support/near.h"

namespace mha::test {
namespace {

constexpr const char* kText = "The stargazers saw Zoë's telescope.";
constexpr double kProvesNothing = 0.05;
/// What is the same measure as another table's, read otherwise.
const std::set<std::string> kAgain = {"health.entropy", "health.special", "norm.special", "norm_share.special", "plane.shown"};
constexpr const char* kOtherText = "The man saw the astronomer with a telescope.";

/// What the model says of the text, and comparison with what NumPy says.
class Goldens {
 public:
  explicit Goldens(const std::string& folder)
      : model(Transformer::load(folder)),
        tokenizer(Tokenizer::load(folder + "/tokenizer.json")),
        sentence(read_sentence(tokenizer, kText)),
        plain(plain_units(sentence.words)),
        capture(capture_heads(model, sentence.ids, workspace)),
        table(fold_weights(capture, sentence.words, workspace)) {
    for (const HeadId& id : all_heads(model.config())) heads.push_back(id);
  }

  std::vector<double> golden(const std::string& name) const { return elements(file_.tensor(name)); }
  std::vector<Index> numbers(const std::string& name) const { return golden_numbers(file_, name); }
  /// One number a head.
  std::vector<double> of_heads(const std::function<double(HeadId)>& number) const {
    std::vector<double> all;
    for (const HeadId& id : heads) all.push_back(number(id));
    return all;
  }

  /// A measure's numbers are NumPy's, each within `limit` and the golden's own rounding. A limit of the size of the numbers would prove
  /// nothing.
  void expect(const std::string& name, const std::vector<double>& got, const std::function<double(std::size_t)>& limit) {
    const std::vector<double> expected = golden(name);
    ASSERT_EQ(got.size(), expected.size()) << name;
    double largest = 0.0;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    double off_most = 0.0;
    double allowed_most = 0.0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double allowed = limit(i) + unit_roundoff(DType::F32) * std::abs(expected[i]);
      EXPECT_NEAR(got[i], expected[i], allowed) << name << " at " << i;
      off_most = std::max(off_most, std::abs(got[i] - expected[i]));
      allowed_most = std::max(allowed_most, allowed);
    }
    EXPECT_LT(allowed_most, kProvesNothing * largest) << name;
    std::cout << name << ": " << got.size() << " numbers up to " << largest << ", off by at most " << off_most << ", allowed up to "
              << allowed_most << "\n";
    count(got.size(), kAgain.count(name) == 0);
  }
  void expect(const std::string& name, const std::vector<double>& got, double limit) {
    expect(name, got, [limit](std::size_t) { return limit; });
  }
  void count(std::size_t compared, bool new_measure) {
    measures_ += new_measure ? 1 : 0;
    ++tables_;
    numbers_ += compared;
  }
  void print_counts() const {
    std::cout << "counts: measures of heads: " << measures_ << " agree with NumPy on the default model, in " << tables_ << " tables of "
              << numbers_ << " numbers\n";
  }

  Workspace workspace;
  Transformer model;
  Tokenizer tokenizer;
  Sentence sentence;
  std::vector<Index> plain;
  Capture capture;
  HeadTable table;
  std::vector<HeadId> heads;
  double off = 0.0;  // of a weight
  double keys() const { return static_cast<double>(sentence.ids.size()); }

 private:
  const SafetensorsFile file_{test_data("analysis_minilm.safetensors")};
  int measures_ = 0;
  int tables_ = 0;
  std::size_t numbers_ = 0;
};

/// The sentence is the golden's, and so are the weights; how far off these are is what all else is measured by.
void expect_weights(Goldens& g) {
  ASSERT_EQ(g.sentence.ids, g.numbers("ids"));
  std::vector<Index> first;
  std::vector<Index> counts;
  for (const Unit& word : g.sentence.words) {
    first.push_back(word.first);
    counts.push_back(word.count);
  }
  EXPECT_EQ(first, g.numbers("word.first"));
  EXPECT_EQ(counts, g.numbers("word.count"));
  const std::vector<double> expected = g.golden("weights");
  std::vector<double> got;
  for (const HeadId& id : g.heads) {
    for (Index from = 0; from < g.table.units(); ++from) {
      for (const float weight : g.table.row(id, from)) got.push_back(weight);
    }
  }
  g.expect("weights", got, kWeightsLimit);
  double worst = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got[i] - expected[i]));
  g.off = 4 * (worst + unit_roundoff(DType::F32));  // a word's weight is a mean over pieces: theirs may be off by more
}

void expect_measures(Goldens& g) {
  // -x ln x changes by no more than d (1 - ln d) where x changes by d.
  const double entropy = g.keys() * g.off * (1 - std::log(g.off));
  for (const MeasureInfo& info : measures()) {
    const double limit = info.measure == Measure::Entropy ? entropy : g.keys() * g.off * (info.measure == Measure::Distance ? g.keys() : 1);
    g.expect("measure." + std::string(info.name),
             g.of_heads([&](HeadId id) { return measure(info.measure, g.table, id, g.sentence.words, g.plain); }), limit);
  }
  HealthWatch watch(g.model.config().layers, g.model.config().heads);
  watch_text(g.model, g.tokenizer, kText, watch, g.workspace);
  g.expect("health.entropy", g.of_heads([&](HeadId id) { return watch.head(id).entropy; }), entropy);
  g.expect("health.sink", g.of_heads([&](HeadId id) { return watch.head(id).sink; }), g.off);
  g.expect("health.special", g.of_heads([&](HeadId id) { return watch.head(id).special; }), 2 * g.off);
  const std::vector<double> logits = g.of_heads([&](HeadId id) { return watch.head(id).max_logit; });
  g.expect("health.max_logit", logits, [&](std::size_t i) { return kWeightsLimit * (1 + std::abs(logits[i])); });
}

void expect_links(Goldens& g) {
  const std::vector<Index> expected = g.numbers("strongest");
  std::size_t at = 0;
  for (const HeadId& id : g.heads) {
    for (const Index from : g.plain) {
      const Index got = strongest(g.table, id, from, g.plain);
      const Index wanted = expected.at(at++);
      if (got == wanted) continue;
      EXPECT_NEAR(g.table.weight(id, from, got), g.table.weight(id, from, wanted), 2 * g.off) << "a tie, or wrong";
    }
  }
  ASSERT_EQ(at, expected.size());
  g.count(at, true);

  UsualWeights usual(g.model.config().layers, g.model.config().heads);
  usual.add(g.table, g.sentence.words);
  const Sentence other = read_sentence(g.tokenizer, kOtherText);
  usual.add(read_heads(g.model, other.ids, other.words, g.workspace), other.words);
  std::vector<double> got;
  for (const HeadId& id : g.heads) {
    for (Index distance = -3; distance <= 3; ++distance) got.push_back(usual.at(id, distance).value());
  }
  g.expect("usual", got, kWeightsLimit);

  const std::vector<WordRelation> relations = find_relation(g.table, g.sentence.words, {.from = 2, .to = 3, .rather_than = 7}, &usual);
  std::vector<double> contrast;
  std::vector<double> lift;
  std::vector<double> lift_back;
  for (const WordRelation& head : relations) {
    contrast.push_back(head.contrast.value());
    lift.push_back(head.lift().value());
    lift_back.push_back(head.lift_back().value());
  }
  contrast.insert(contrast.end(), lift.begin(), lift.end());
  contrast.insert(contrast.end(), lift_back.begin(), lift_back.end());
  g.expect("relation", contrast, 2 * kWeightsLimit);
}

void expect_norms(Goldens& g) {
  const auto length = static_cast<Index>(g.sentence.ids.size());
  const auto dim = static_cast<double>(g.model.config().head_dim);
  const std::vector<ConstTensorView> projections = output_projections(g.model);
  std::vector<double> all;
  std::vector<double> limits;  // values are off by the encoder's promise: times W_O^h
  for (const HeadId& id : g.heads) {
    const ConstTensorView& projection = projections[static_cast<std::size_t>(id.layer)];
    const Index first = id.head * g.model.config().head_dim;
    const std::vector<double> columns = elements(projection.slice(1, first, first + g.model.config().head_dim));
    const double square = std::inner_product(columns.begin(), columns.end(), columns.begin(), 0.0);
    for (const double norm : value_norms(g.capture.layers[static_cast<std::size_t>(id.layer)], projection, id.head)) {
      all.push_back(norm);
      limits.push_back(kHiddenLimit * std::sqrt(dim * square));
    }
  }
  g.expect("norms", all, [&](std::size_t i) { return limits[i]; });

  const HeadTable norms = fold_norms(g.capture, projections, g.sentence.words, g.workspace);
  const HeadTable shares = row_shares(norms);
  const auto limit = [&](std::size_t head) {
    const auto start = all.begin() + static_cast<std::ptrdiff_t>(head) * length;
    return g.keys() * g.off * *std::max_element(start, start + length) + limits[head * static_cast<std::size_t>(length)];
  };
  const auto special = [&](const HeadTable& table) {
    return g.of_heads([&](HeadId id) { return measure(Measure::Special, table, id, g.sentence.words, g.plain); });
  };
  g.expect("norm.special", special(norms), limit);
  g.expect("norm_share.special", special(shares), [&](std::size_t head) {
    double least = INFINITY;
    for (const Index from : g.plain) {
      const std::span<const float> row = norms.row(g.heads[head], from);
      least = std::min(least, std::accumulate(row.begin(), row.end(), 0.0));
    }
    return 2 * limit(head) / least;  // of the part and of the whole
  });
}

void expect_rollout(Goldens& g) {
  std::vector<double> got;
  for (Index piece = 0; piece < static_cast<Index>(g.sentence.ids.size()); ++piece) {
    const std::vector<double> row = rollout(g.capture, {.first = piece}, g.workspace);
    got.insert(got.end(), row.begin(), row.end());
  }
  g.expect("rollout", got, static_cast<double>(g.model.config().layers) * g.keys() * g.off / 2);
}

void expect_pairs(Goldens& g) {
  // p ln(p / m) changes by no more than d ln(1000 n), weights being smoothed to at least 1 / (1000 n).
  const HeadMatrix distances = head_distances({&g.capture, 1}, g.workspace);
  g.expect("js", distances.values, g.keys() * g.keys() * g.off * std::log(1000 * g.keys()));

  // The plane of NumPy's own distances, whose rounding to f32 turns its axes by its size over the gap between their variances.
  HeadMatrix given{.heads = distances.heads, .values = g.golden("js")};
  const PlaneMap map = plane_map(given);
  const std::vector<double> variances = g.golden("plane.eigenvalues");
  const double largest = *std::max_element(given.values.begin(), given.values.end());
  const double rounding = 2 * unit_roundoff(DType::F32) * largest * largest * static_cast<double>(given.size());
  const double gap = std::min(variances[0] - variances[1], variances[1] - variances[2]);
  std::vector<double> points;
  for (const auto& point : map.points) points.insert(points.end(), point.begin(), point.end());
  g.expect("plane", points, std::sqrt(variances[0]) * rounding / gap);
  g.expect("plane.shown", {map.shown}, rounding / variances[0]);

  const HeadMatrix alike = head_similarities({&g.capture, 1}, g.workspace);
  std::vector<double> spread;  // outputs' distance from their mean, Frobenius
  for (const HeadId& id : g.heads) {
    const ConstTensorView& all = g.capture.layers[static_cast<std::size_t>(id.layer)].head_out;
    const Index rows = all.size(1);
    double square = 0.0;
    for (Index d = 0; d < all.size(3); ++d) {
      double sum = 0.0;
      double squares = 0.0;
      for (Index row = 0; row < rows; ++row) {
        const double value = element(all, 0, row, id.head, d);
        sum += value;
        squares += value * value;
      }
      square += squares - sum * sum / static_cast<double>(rows);
    }
    spread.push_back(std::sqrt(square / static_cast<double>(rows * all.size(3))));
  }
  g.expect("cka", alike.values,
           [&](std::size_t i) { return 2 * kHiddenLimit * (1 / spread[i / spread.size()] + 1 / spread[i % spread.size()]); });
}

void expect_repeated(Goldens& g) {
  RepeatedText text{.ids = g.numbers("repeated.ids"), .first = 1, .period = 10};
  const std::vector<RepeatedScores> scores = repeated_scores(capture_heads(g.model, text.ids, g.workspace), text, g.workspace);
  const auto expect = [&](const std::string& name, double RepeatedScores::* score) {
    std::vector<double> got;
    for (const RepeatedScores& head : scores) got.push_back(head.*score);
    g.expect(name, got, kWeightsLimit);
  };
  expect("repeated.previous", &RepeatedScores::previous);
  expect("repeated.duplicate", &RepeatedScores::duplicate);
  expect("repeated.induction", &RepeatedScores::induction);
}

void expect_leave_one_out(Goldens& g) {
  Tensor hidden(DType::F32, {1, static_cast<Index>(g.sentence.ids.size()), g.model.config().d_model});
  run_with(g.model, g.sentence.ids, {}, hidden, g.workspace);
  const std::vector<double> states = elements(hidden);
  const double norm = std::sqrt(std::inner_product(states.begin(), states.end(), states.begin(), 0.0));
  // Both runs are off by the encoder's promise; the mean vector's length is not above the root mean square of the rows'.
  const double off = 2 * kHiddenLimit * std::sqrt(static_cast<double>(states.size())) / norm;
  const std::vector<TextIds> texts = {g.sentence.ids};
  const auto expect = [&](const std::string& name, Ablation ablation) {
    std::vector<double> vectors;
    std::vector<double> both;
    for (const HeadEffect& effect : head_effects(g.model, texts, ablation, g.workspace)) {
      vectors.push_back(effect.vector);
      both.push_back(effect.hidden);
    }
    const std::size_t count = vectors.size();
    both.insert(both.begin(), vectors.begin(), vectors.end());
    // 1 - cosine is half the square of the distance of unit vectors.
    g.expect(name, both, [&](std::size_t i) { return i < count ? off * std::sqrt(2 * vectors[i]) + off * off : off; });
  };
  expect("leave_one_out.zero", Ablation::Zero);
  expect("leave_one_out.mean", Ablation::Mean);
}

TEST(AnalysisGoldens, EveryMeasureIsThatOfNumPyOnTheDefaultModel) {
  const std::string folder = default_model_folder();
  if (folder.empty()) GTEST_SKIP() << "the default model is not there: ./run or ./test fetches it";
  Goldens g(folder);
  expect_weights(g);
  expect_measures(g);
  expect_links(g);
  expect_norms(g);
  expect_rollout(g);
  expect_pairs(g);
  expect_repeated(g);
  expect_leave_one_out(g);
  g.print_counts();
}

}  // namespace
}  // namespace mha::test
