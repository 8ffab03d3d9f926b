// Matching of words, differences of heads, and all patches of a text in one batch.
#include "mha/analysis/patching.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/variants.h"
#include "mha/analysis/capture.h"
#include "mha/analysis/head_table.h"
#include "mha/analysis/measures.h"

namespace mha {
namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// Whether the model reads both alike. Words of unknown pieces have no key and go by their text.
bool alike(const Unit& a, const Unit& b) {
  if (a.special != b.special) return false;
  return a.special || a.key.empty() || b.key.empty() ? a.text == b.text : a.key == b.key;
}

/// [words of A + 1, words of B + 1]: how many words match from there on, at most.
std::vector<Index> common_from(const std::vector<Unit>& a, const std::vector<Unit>& b) {
  const std::size_t width = b.size() + 1;
  std::vector<Index> common((a.size() + 1) * width);
  for (std::size_t i = a.size(); i-- > 0;) {
    for (std::size_t j = b.size(); j-- > 0;) {
      const Index skipped = std::max(common[(i + 1) * width + j], common[i * width + j + 1]);
      common[i * width + j] = alike(a[i], b[j]) ? std::max(skipped, common[(i + 1) * width + j + 1] + 1) : skipped;
    }
  }
  return common;
}

double total_variation(std::span<const float> a, std::span<const float> b, std::span<const MatchedWords> words) {
  double sum = 0.0;
  double rest = 0.0;  // weight of A's other words minus that of B's
  for (const float weight : a) rest += static_cast<double>(weight);
  for (const float weight : b) rest -= static_cast<double>(weight);
  for (const MatchedWords& pair : words) {
    const double difference = static_cast<double>(a[at(pair.a)]) - static_cast<double>(b[at(pair.b)]);
    sum += std::abs(difference);
    rest -= difference;
  }
  const bool all = words.size() == a.size() && words.size() == b.size();
  return (sum + (all ? 0.0 : std::abs(rest))) / 2.0;
}

/// Both texts' runs.
struct Runs {
  const Sentence& a;
  const Sentence& b;
  HeadTable a_table, b_table;
  Capture b_capture;
  std::vector<double> a_vector, b_vector;
};

double weights_difference(const Runs& runs, std::span<const MatchedWords> words, HeadId id) {
  double sum = 0.0;
  Index rows = 0;
  for (const MatchedWords& pair : words) {
    if (runs.a.words[at(pair.a)].special || runs.b.words[at(pair.b)].special) continue;
    sum += total_variation(runs.a_table.row(id, pair.a), runs.b_table.row(id, pair.b), words);
    ++rows;
  }
  return rows == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(rows);
}

std::vector<double> measures_of(const HeadTable& table, const Sentence& sentence, HeadId id) {
  const std::vector<Index> rows = plain_units(sentence.words);
  std::vector<double> values;
  for (const MeasureInfo& info : measures()) values.push_back(measure(info.measure, table, id, sentence.words, rows));
  return values;
}

/// One head's output in the rows of matched words becomes B's. `heads` is [1, pieces, heads, head_dim] of A.
void patch(TensorView heads, const Runs& runs, std::span<const MatchedWords> words, HeadId id) {
  const ConstTensorView& from = runs.b_capture.layers[at(id.layer)].head_out;
  for (const MatchedWords& pair : words) {
    const Unit& word = runs.a.words[at(pair.a)];
    const Unit& other = runs.b.words[at(pair.b)];
    for (Index piece = 0; piece < word.count; ++piece) {
      float* row = heads.as<float>() + (word.first + piece) * heads.stride(1) + id.head * heads.stride(2);
      const bool one_to_one = word.count == other.count;
      const Index first = one_to_one ? other.first + piece : other.first;
      const Index count = one_to_one ? 1 : other.count;
      for (Index d = 0; d < heads.size(3); ++d) {
        double sum = 0.0;
        for (Index i = first; i < first + count; ++i) {
          sum += static_cast<double>(from.as<float>()[i * from.stride(1) + id.head * from.stride(2) + d * from.stride(3)]);
        }
        row[d * heads.stride(3)] = static_cast<float>(sum / static_cast<double>(count));
      }
    }
  }
}

Runs run_both(const Transformer& model, const Sentence& a, const Sentence& b, Workspace& workspace) {
  const Index width = model.config().d_model;
  Tensor a_hidden(DType::F32, {1, static_cast<Index>(a.ids.size()), width});
  Tensor b_hidden(DType::F32, {1, static_cast<Index>(b.ids.size()), width});
  HeadTable a_table = read_heads(model, a.ids, a.words, workspace, {}, a_hidden);
  HeadTable b_table = read_heads(model, b.ids, b.words, workspace);
  Capture b_capture = capture_heads(model, b.ids, workspace, {}, b_hidden);
  return {.a = a,
          .b = b,
          .a_table = std::move(a_table),
          .b_table = std::move(b_table),
          .b_capture = std::move(b_capture),
          .a_vector = sentence_vector(a_hidden),
          .b_vector = sentence_vector(b_hidden)};
}

}  // namespace

std::vector<MatchedWords> match_words(const Sentence& a, const Sentence& b) {
  std::vector<MatchedWords> words;
  if (a.words.size() == b.words.size()) {
    for (Index i = 0; i < static_cast<Index>(a.words.size()); ++i) words.push_back({i, i});
    return words;
  }
  const std::vector<Index> common = common_from(a.words, b.words);
  const std::size_t width = b.words.size() + 1;
  for (std::size_t i = 0, j = 0; i < a.words.size() && j < b.words.size();) {
    const Index here = common[i * width + j];
    if (alike(a.words[i], b.words[j]) && here == common[(i + 1) * width + j + 1] + 1) {
      words.push_back({static_cast<Index>(i++), static_cast<Index>(j++)});
    } else if (here == common[i * width + j + 1]) {
      ++j;
    } else {
      ++i;
    }
  }
  return words;
}

TextComparison compare_texts(const Transformer& model, const Sentence& a, const Sentence& b, Workspace& workspace) {
  const Runs runs = run_both(model, a, b, workspace);
  TextComparison comparison{.words = match_words(a, b),
                            .by_position = a.words.size() == b.words.size(),
                            .cosine = cosine(runs.a_vector, runs.b_vector),
                            .heads = {}};
  const std::vector<HeadId> heads = all_heads(model.config());
  for (const HeadId& id : heads) {
    comparison.heads.push_back({.id = id,
                                .weights = weights_difference(runs, comparison.words, id),
                                .a = measures_of(runs.a_table, a, id),
                                .b = measures_of(runs.b_table, b, id)});
  }
  const auto change = [&](std::size_t variant, Index layer, TensorView out) {
    if (heads[variant].layer == layer) patch(out, runs, comparison.words, heads[variant]);
  };
  const auto visit = [&](std::size_t variant, ConstTensorView hidden) {
    const std::vector<double> vector = sentence_vector(hidden);
    comparison.heads[variant].moved = 1.0 - cosine(runs.a_vector, vector);
    comparison.heads[variant].towards = cosine(vector, runs.b_vector) - comparison.cosine;
  };
  analysis::run_variants(model, a.ids, heads.size(), change, visit, workspace);
  return comparison;
}

}  // namespace mha
