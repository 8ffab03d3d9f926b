// Sentences with their dependency trees, read one by one from CoNLL-U (https://universaldependencies.org/format.html): ten columns a word,
// an empty line after each sentence. What is not CoNLL-U is an error with its line; a tree that is not whole is counted and left out by the
// rules below, never used in silence.
//
//   std::ifstream file("en_ewt-ud-dev.conllu", std::ios::binary);
//   mha::ConlluReader reader(file, "en_ewt-ud-dev.conllu");
//   for (mha::TreeSentence sentence; reader.next(sentence);) { ... }
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "mha/model/tokenizer.h"
#include "mha/tensor.h"

namespace mha {

/// A word of the tree ("syntactic word": "don't" is two, "do" and "n't").
struct TreeWord {
  static constexpr Index kRoot = -1;   // hangs on nothing
  static constexpr Index kNoArc = -2;  // HEAD is "_" or beyond the sentence, or the relation is "_"

  std::string form;
  std::string upos;
  std::string relation;  // with its subtype: "nmod:poss"
  Index head = kNoArc;   // position in TreeSentence::words, kRoot or kNoArc
  TextSpan bytes;        // in TreeSentence::text; of the whole multiword token where the words' forms do not spell it ("du" = "de" + "le")
};

struct TreeSentence {
  std::string text;  // the tokens, joined as SpaceAfter says
  std::vector<TreeWord> words;
  Index line = 0;  // of its first word, counted from 1
};

/// What was read so far.
struct ConlluCounts {
  Index sentences = 0;  // all of them
  Index words = 0;
  Index multiword_tokens = 0;  // lines 1-2: their words count, they themselves give the text
  Index empty_nodes = 0;       // lines 1.1: they have no place in the text and are left out
  // Sentences that `next` does not give.
  Index cyclic = 0;         // some word hangs on itself, directly or by others
  Index several_roots = 0;  // more than one word with HEAD 0
  // Words without an arc (TreeWord::kNoArc) in sentences that `next` gives.
  Index missing_heads = 0;  // HEAD is "_"
  Index heads_beyond = 0;   // HEAD is larger than the sentence
  Index missing_relations = 0;
  // Only told.
  Index other_texts = 0;  // sentences whose "# text" is not what their tokens give; the tokens are what is used
};

class ConlluReader {
 public:
  static constexpr Index kLongestLine = Index{1} << 20;  // bytes
  static constexpr Index kMostWords = 100'000;           // of a sentence

  /// Reads from `in`, which must outlive the reader; `name` is the file's in errors.
  ConlluReader(std::istream& in, std::string name);

  /// The next sentence whose arcs make no cycle and have at most one root; false at the end of the file. Throws FormatError (file, line)
  /// for text that is no UTF-8, a line that has not ten columns or an empty one, a word out of order, a HEAD that is no number, a
  /// multiword token that reaches into another or beyond its sentence, a sentence without words, a line or a sentence beyond the limits;
  /// IoError where the file cannot be read on.
  bool next(TreeSentence& sentence);

  const ConlluCounts& counts() const { return counts_; }
  const std::string& name() const { return name_; }

 private:
  bool read_line(std::string& line);
  bool read_sentence(TreeSentence& sentence);
  [[noreturn]] void fail(const std::string& what) const;

  std::istream* in_;
  std::string name_;
  ConlluCounts counts_;
  ConlluCounts lost_;  // arcs of the sentence read last
  Index line_ = 0;     // counted from 1, the one read last
};

}  // namespace mha
