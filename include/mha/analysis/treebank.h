// Every head's answer to every arc of a treebank (Clark et al. 2019, arXiv 1906.04341, section 4.2): is the word attended to most the one
// that the tree says? And to every verb - noun - preposition - noun: which of the two does the last noun hang on? What is kept is yes or
// no per arc and head; relation_scores.h makes accuracies of it.
//
//   mha::TreebankAnswers answers(config.layers, config.heads);
//   mha::answer_treebank(model, tokenizer, reader, answers, workspace);
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "mha/analysis/conllu.h"
#include "mha/analysis/head_table.h"

namespace mha {

/// A tree's words as the model reads them: a unit each, where the pieces are a word's own.
struct AlignedWords {
  static constexpr Index kNoUnit = -1;

  std::vector<Index> ids;
  std::vector<Unit> units;      // the tokenizer's own tokens included, as special ones
  std::vector<Index> unit_of;   // per word of the tree, position in `units`; kNoUnit where it has none of its own
  Index without_pieces = 0;     // words of which the tokenizer leaves nothing
  Index sharing_pieces = 0;     // words that have a piece together with another word: they are one unit, which is nobody's
  Index of_several_pieces = 0;  // words with a unit of two pieces and more
};

/// Tokenizes the sentence's text and gives each piece to the word in whose part of the text it lies. Throws what Tokenizer::encode throws.
AlignedWords align_words(const TreeSentence& sentence, const Tokenizer& tokenizer);

/// Which way an arc is looked for in a head's table of words.
enum class Direction : std::uint8_t {
  FromDependent,  // the word that the dependent attends to most is its head
  ToDependent,    // the word that attends most to the dependent is its head (Clark et al.'s released code: the table transposed)
};
inline constexpr Index kDirections = 2;

/// From where verb and noun are looked at.
enum class Viewpoint : std::uint8_t { Preposition, Object };
inline constexpr Index kViewpoints = 2;

/// What became of the words of a treebank, beside what its reader counts.
struct TreebankCounts {
  Index sentences = 0;       // read by the model
  Index too_long = 0;        // sentences of more pieces than the model has positions: left out
  Index words = 0;           // of the sentences read
  Index without_pieces = 0;  // as in AlignedWords
  Index sharing_pieces = 0;
  Index of_several_pieces = 0;
  Index arcs_lost = 0;   // arcs one of whose ends has no unit of its own
  Index cases_lost = 0;  // likewise of verb - noun - preposition - noun
};

class TreebankAnswers {
 public:
  struct Arc {
    Index relation = 0;  // in `relations`
    Index sentence = 0;
    Index offset = 0;  // position of the head minus that of the dependent, in words of the tree
  };
  struct Case {
    Index sentence = 0;
    bool verb = false;        // attached to the verb, not to the noun
    std::string preposition;  // lower case (ASCII)
  };

  /// Throws ShapeError for a negative size.
  TreebankAnswers(Index layers, Index heads);

  /// Adds one sentence. The argmax is over all words but the one looked from, special tokens excluded; the first of equals. A case is: noun
  /// n is `obj` of verb v, n follows v; a word p follows n and is the first `case` of a later word o, which is `obl` of v or `nmod` of n. A
  /// head says verb where the viewpoint's weight on v is larger than on n. Throws ShapeError where they do not fit.
  void add(const TreeSentence& sentence, const AlignedWords& words, const HeadTable& table);
  /// Adds all of `other`, a later part of the treebank. Throws ShapeError for another number of heads.
  void append(const TreebankAnswers& other);
  /// A sentence that was left out for its length.
  void skip_too_long() { ++counts_.too_long; }

  Index layers() const { return layers_; }
  Index heads() const { return heads_; }
  const std::vector<std::string>& relations() const { return relations_; }
  const std::vector<Arc>& arcs() const { return arcs_; }
  const std::vector<Case>& cases() const { return cases_; }
  const TreebankCounts& counts() const { return counts_; }
  /// Whether that head attended to anything in any sentence: one that was removed from the model did not, and is not to be chosen.
  bool present(HeadId id) const;
  /// Whether that head finds arc number `arc`.
  bool finds(Index arc, Direction direction, HeadId id) const;
  /// Whether that head says that case number `number` hangs on the verb.
  bool says_verb(Index number, Viewpoint viewpoint, HeadId id) const;

 private:
  Index relation_number(const std::string& name);
  void add_arcs(const TreeSentence& sentence, const AlignedWords& words, const HeadTable& table);
  void add_cases(const TreeSentence& sentence, const AlignedWords& words, const HeadTable& table);
  std::size_t place(Index entry, Index way, HeadId id) const;

  Index layers_;
  Index heads_;
  std::vector<std::string> relations_;
  std::map<std::string, Index> numbers_;
  std::vector<Arc> arcs_;
  std::vector<Case> cases_;
  std::vector<bool> present_;            // [layers, heads]
  std::vector<std::uint8_t> found_;      // [arcs, directions, layers, heads]
  std::vector<std::uint8_t> said_verb_;  // [cases, viewpoints, layers, heads]
  TreebankCounts counts_;
};

/// Runs the model over all sentences that `reader` gives, as many at once as the workspace has threads, and adds their answers in the
/// file's order. `progress`, where given, is called now and then from the calling thread with the number of sentences done. Throws what
/// the reader throws and ShapeError where the answers are of another model's size.
void answer_treebank(const Transformer& model, const Tokenizer& tokenizer, ConlluReader& reader, TreebankAnswers& answers,
                     Workspace& workspace, const std::function<void(Index)>& progress = {});

}  // namespace mha
