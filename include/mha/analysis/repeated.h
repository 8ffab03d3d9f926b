// Previous-token, duplicate-token and induction scores (Olsson et al. 2022, "In-context Learning and Induction Heads"): the model reads
// `period` random tokens twice, T of them in a row and the same T again, so that nothing but position and repetition tells a head where to
// look; a score is its mean weight at one offset back: i - 1, i - T (the same token before), i - T + 1 (what followed it then).
//
// In a causal model an induction head predicts the next token by it. A bidirectional encoder predicts none here, and its tokens see both
// copies: scores look back only, as published, so a head that looks at copies of a token on either side keeps a part of its weight for
// the side that is not counted; and a high induction score says that the head goes by repetition and place, no more than that.
//
//   for (const mha::RepeatedScores& scores : mha::repeated_scores(model, tokenizer, {}, workspace)) ...
#pragma once

#include <cstdint>
#include <vector>

#include "mha/analysis/capture.h"
#include "mha/model/tokenizer.h"

namespace mha {

/// Random tokens twice, in the tokenizer's frame ([CLS] ... [SEP]).
struct RepeatedText {
  std::vector<Index> ids;
  Index first = 0;   // place of the first random token
  Index period = 0;  // T: the same tokens begin again at first + period
};

/// `period` different tokens that are whole words of letters, drawn from the vocabulary by a seed; the same for the same seed. Throws Error
/// where the vocabulary has fewer, ShapeError for a period below 1.
RepeatedText repeated_text(const Tokenizer& tokenizer, Index period, std::uint64_t seed);

/// One head's mean weights; NaN for one that was removed from the model.
struct RepeatedScores {
  HeadId id;
  double previous = 0;   // at i - 1, over the 2 T - 1 random tokens that have a random one before them
  double duplicate = 0;  // at i - T, over the second copy
  double induction = 0;  // at i - T + 1, over the second copy
};

/// Of every head of a run over that text, layer by layer. Throws ShapeError where the capture is of a text of another length.
std::vector<RepeatedScores> repeated_scores(const Capture& capture, const RepeatedText& text, Workspace& workspace);

struct RepeatedOptions {
  Index period = 24;
  Index texts = 4;  // their scores' mean is taken
  std::uint64_t seed = 1;
};

/// The same over several texts of random tokens. Throws as repeated_text and capture_heads do, ShapeError for less than one text.
std::vector<RepeatedScores> repeated_scores(const Transformer& model, const Tokenizer& tokenizer, const RepeatedOptions& options,
                                            Workspace& workspace);

}  // namespace mha
