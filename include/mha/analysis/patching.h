// Two sentences through one model: which heads do something else, and which of them make the difference. Patching (as in Vig et al. 2020,
// arXiv 2004.12265: activations of one run put into another) runs A with one head's output taken from B and looks where A's answer goes.
//
//   mha::TextComparison comparison = mha::compare_texts(model, a, b, workspace);
#pragma once

#include <vector>

#include "mha/analysis/intervention.h"
#include "mha/analysis/sentence.h"
#include "mha/model/transformer.h"
#include "mha/workspace.h"

namespace mha {

/// A word of A and the word of B that stands for it, by positions in Sentence::words.
struct MatchedWords {
  Index a = 0;
  Index b = 0;
};

/// Texts of equally many words: position by position, whatever the words are. Otherwise the longest common subsequence of words that the
/// model reads alike (Unit::key), the special ones among them; of several such the one that matches A's earliest words first. Words without
/// a partner are left out.
std::vector<MatchedWords> match_words(const Sentence& a, const Sentence& b);

struct HeadComparison {
  HeadId id;
  /// How differently matched plain words attend: mean over them of the total variation distance of the two rows, half the sum of |a - b|
  /// over matched words, all others of a text taken as one. From 0 to 1; NaN where no plain word is matched.
  double weights = 0.0;
  std::vector<double> a, b;  // measures() of each text, over its plain words
  double moved = 0.0;        // by the patch: 1 - cosine of A's sentence vectors before and after
  double towards = 0.0;      // by the patch: by how much A's sentence vector has come nearer to B's, as a difference of cosines
};

struct TextComparison {
  std::vector<MatchedWords> words;
  bool by_position = false;
  double cosine = 1.0;                // of the sentence vectors of A and B
  std::vector<HeadComparison> heads;  // all of the model, by layer, then head
};

/// Each head patched alone: in the rows of matched words its output, where it enters W_O, is that of B's run (piece by piece where both
/// words have equally many pieces, else the mean over the pieces of B's word); other words keep A's. Throws what `run_with` throws.
TextComparison compare_texts(const Transformer& model, const Sentence& a, const Sentence& b, Workspace& workspace);

}  // namespace mha
