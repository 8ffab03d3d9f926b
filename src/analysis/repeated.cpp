// Scores on random tokens read twice: how the text is drawn from a vocabulary, and sums along three diagonals of every head.
#include "mha/analysis/repeated.h"

#include <limits>
#include <numeric>
#include <random>
#include <string_view>

#include "analysis/capture_rows.h"
#include "core/check.h"
#include "mha/error.h"

namespace mha {
namespace {

/// A whole word to this tokenizer: letters alone (of any alphabet: bytes beyond ASCII), read as this one token.
bool is_word(const Tokenizer& tokenizer, Index id) {
  constexpr std::size_t kShortest = 3;
  const std::optional<std::string_view> token = tokenizer.token(id);
  if (!token || token->size() < kShortest) return false;
  for (const char c : *token) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80;
    if (!letter) return false;
  }
  return tokenizer.encode(*token, false).ids == std::vector<Index>{id};
}

/// Different words, each id of the vocabulary looked at once at most.
std::vector<Index> random_words(const Tokenizer& tokenizer, Index count, std::uint64_t seed) {
  std::vector<Index> vocabulary(static_cast<std::size_t>(tokenizer.size()));
  std::iota(vocabulary.begin(), vocabulary.end(), Index{0});
  std::mt19937_64 generator(seed);  // the standard says its numbers, which it does not for its distributions
  std::vector<Index> words;
  for (std::size_t end = vocabulary.size(); end > 0 && static_cast<Index>(words.size()) < count; --end) {
    std::swap(vocabulary[generator() % end], vocabulary[end - 1]);
    if (is_word(tokenizer, vocabulary[end - 1])) words.push_back(vocabulary[end - 1]);
  }
  MHA_CHECK(Error, static_cast<Index>(words.size()) == count, "repeated_text: the vocabulary has ", words.size(),
            " whole words, the period is ", count);
  return words;
}

}  // namespace

RepeatedText repeated_text(const Tokenizer& tokenizer, Index period, std::uint64_t seed) {
  MHA_CHECK(ShapeError, period >= 1, "repeated_text: period is ", period, ", must be at least 1");
  const std::vector<Index> words = random_words(tokenizer, period, seed);
  const Encoding framed = tokenizer.encode(*tokenizer.token(words[0]));
  RepeatedText text{.ids = {}, .first = 0, .period = period};
  for (std::size_t i = 0; i < framed.size(); ++i) {
    if (framed.special[i]) {
      text.ids.push_back(framed.ids[i]);
      continue;
    }
    text.first = static_cast<Index>(i);
    for (int copies = 0; copies < 2; ++copies) text.ids.insert(text.ids.end(), words.begin(), words.end());
  }
  return text;
}

std::vector<RepeatedScores> repeated_scores(const Capture& capture, const RepeatedText& text, Workspace& workspace) {
  const Index length = analysis::self_length(capture, "repeated_scores");
  MHA_CHECK(ShapeError, length == static_cast<Index>(text.ids.size()), "repeated_scores: a capture of ", length, " tokens for a text of ",
            text.ids.size());
  const Interval random{text.first, text.first + 2 * text.period};
  MHA_CHECK(ShapeError, text.first >= 0 && text.period >= 1 && text.period <= (length - text.first) / 2, "repeated_scores: twice ",
            text.period, " tokens from ", text.first, " on in a text of ", length);
  std::vector<RepeatedScores> all;
  for (const HeadId& id : analysis::heads_of(capture)) {
    RepeatedScores scores{.id = id};
    if (analysis::is_removed(analysis::layer_of(capture, id), id.head)) {
      scores.previous = scores.duplicate = scores.induction = std::numeric_limits<double>::quiet_NaN();
      all.push_back(scores);
      continue;
    }
    analysis::for_row_blocks({analysis::layer_of(capture, id), id.head, 0}, random, workspace,
                             [&](Index first, const ConstTensorView& weights) {
                               for (Index r = 0; r < weights.size(0); ++r) {
                                 const Index row = first + r;
                                 const float* alpha = weights.as<float>() + r * weights.stride(0);
                                 if (row > random.lo) scores.previous += static_cast<double>(alpha[row - 1]);
                                 if (row < random.lo + text.period) continue;
                                 scores.duplicate += static_cast<double>(alpha[row - text.period]);
                                 scores.induction += static_cast<double>(alpha[row - text.period + 1]);
                               }
                             });
    scores.previous /= static_cast<double>(2 * text.period - 1);
    scores.duplicate /= static_cast<double>(text.period);
    scores.induction /= static_cast<double>(text.period);
    all.push_back(scores);
  }
  return all;
}

std::vector<RepeatedScores> repeated_scores(const Transformer& model, const Tokenizer& tokenizer, const RepeatedOptions& options,
                                            Workspace& workspace) {
  MHA_CHECK(ShapeError, options.texts >= 1, "repeated_scores: texts is ", options.texts, ", must be at least 1");
  std::vector<RepeatedScores> mean;
  for (Index i = 0; i < options.texts; ++i) {
    const RepeatedText text = repeated_text(tokenizer, options.period, options.seed + static_cast<std::uint64_t>(i));
    const std::vector<RepeatedScores> scores = repeated_scores(capture_heads(model, text.ids, workspace), text, workspace);
    mean.resize(scores.size());
    for (std::size_t h = 0; h < scores.size(); ++h) {
      mean[h].id = scores[h].id;
      mean[h].previous += scores[h].previous / static_cast<double>(options.texts);
      mean[h].duplicate += scores[h].duplicate / static_cast<double>(options.texts);
      mean[h].induction += scores[h].induction / static_cast<double>(options.texts);
    }
  }
  return mean;
}

}  // namespace mha
