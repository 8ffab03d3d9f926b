// The health of every head over many texts: what large runs watch so as to see logits explode, attention collapse or heads die. Summed up
// from the statistics of rows (mha/statistics.h), so no table of weights is ever held. Formulas and sources: docs/numerics.md.
//
//   mha::HealthWatch watch(model.config().layers, model.config().heads);
//   for (const std::string& text : texts) mha::watch_text(model, tokenizer, text, watch, workspace);
//   double entropy = watch.head({.layer = 0, .head = 3}).entropy;
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "mha/analysis/intervention.h"
#include "mha/model/tokenizer.h"
#include "mha/model/transformer.h"

namespace mha {

/// From when on a row counts. A row that sees n keys can have an entropy of ln n at most.
struct HealthRules {
  double collapsed = 0.1;  // entropy collapsed: below this share of ln n
  double uniform = 0.99;   // near-uniform: entropy above this share of ln n
  double one_key = 0.99;   // single-key: largest weight above this
};

/// One head over all rows counted, special tokens' own rows included. Rows with a NaN or an infinity take no part in means and shares, rows
/// that see one key take no part in shares. How many keys a row sees is told by rules, lengths and `allowed`; a bias of -inf is not looked
/// at. A mean or share of no row is NaN.
struct HeadHealth {
  Index rows = 0;                                               // that see a key, whatever they hold
  Index nan_rows = 0;                                           // a NaN among the weights or in the head's output
  Index infinite_rows = 0;                                      // an infinite score (whose row of weights is NaN) or output
  Index nonfinite_rows = 0;                                     // one of both
  double max_logit = -std::numeric_limits<double>::infinity();  // largest score, scaled, before softmax; NaN is passed over
  double entropy = 0;                                           // mean, nats
  double sink = 0;                                              // mean weight on key 0
  double special = 0;                                           // mean weight on the chosen keys: the tokenizer's own tokens
  double collapsed = 0;                                         // share of rows
  double uniform = 0;                                           // share of rows
  double one_key = 0;                                           // share of rows
  double dead = 0;                                              // share of rows, near-uniform or single-key
};

/// Adds rows up by head. Plain sums: memory does not grow with what is added.
class HealthWatch {
 public:
  /// Throws ShapeError for a negative size, Error for a rule outside [0, 1].
  HealthWatch(Index layers, Index heads, const HealthRules& rules = {});

  Index layers() const { return layers_; }
  Index heads() const { return heads_; }
  const HealthRules& rules() const { return rules_; }

  /// All rows of one layer, as a hook is given it by a run that asks for statistics. Rows that see no key (padding) are not counted. Throws
  /// ShapeError for a layer that is not there, another number of heads, or where statistics are missing (chosen_weight may be).
  void add(Index layer, const MhaTrace& trace);
  /// Throws ShapeError for a head that is not there.
  HeadHealth head(HeadId id) const;

 private:
  struct Sums {
    HeadHealth counts;  // rows and the largest logit
    Index finite = 0, choosing = 0, weighed = 0;
    double entropy = 0, sink = 0, special = 0;
    Index collapsed = 0, uniform = 0, one_key = 0, dead = 0;
  };
  struct Row;
  static Row row_of(const MhaTrace& trace, Index b, Index h, Index q);
  void add_row(Sums& sums, const Row& row, Index keys) const;

  Index layers_;
  Index heads_;
  HealthRules rules_;
  std::vector<Sums> sums_;  // [layers, heads]
};

/// What became of one text.
struct WatchedText {
  Index tokens = 0;  // read by the model; 0: the text has no word, nothing was run
  bool cut = false;  // longer than the model reads: its last tokens were left out (the frame's own stay)
};

/// Runs the model over one text and adds all its rows. Memory grows with the number of tokens, not with its square. Throws FormatError
/// where the text is not UTF-8, ShapeError where the watch is of another model's size.
WatchedText watch_text(const Transformer& model, const Tokenizer& tokenizer, const std::string& text, HealthWatch& watch,
                       Workspace& workspace);

}  // namespace mha
