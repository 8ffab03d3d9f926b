// All heads over many texts: their measures, their roles, and in how many of the texts a role holds, because one sentence proves nothing.
//
//   mha::HeadSurvey survey(model.config().layers, model.config().heads);
//   const mha::TextSurveyor surveyor(model, tokenizer);
//   for (const std::string& text : texts) surveyor.add(text, survey, workspace);
//   mha::HeadRole role = mha::role_of(survey.summary({.layer = 0, .head = 2}));
//   double stable = survey.share({.layer = 0, .head = 2}, role);
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mha/analysis/head_table.h"
#include "mha/analysis/norms.h"
#include "mha/analysis/roles.h"
#include "mha/model/tokenizer.h"
#include "mha/model/transformer.h"

namespace mha {

/// Adds texts up by head. Memory does not grow with what is added.
class HeadSurvey {
 public:
  /// Throws ShapeError for a negative size.
  HeadSurvey(Index layers, Index heads, const RoleRules& rules = {});

  Index layers() const { return layers_; }
  Index heads() const { return heads_; }
  const RoleRules& rules() const { return rules_; }
  /// Texts with at least rules().least_rows rows: those that `share` is of.
  Index judged() const { return judged_; }

  /// One text, by words or by pieces. `norms`, which may be absent, is what each row carries, each row as shares of 1. Throws ShapeError
  /// for a table of another size, or units of another text.
  void add(const HeadTable& table, std::span<const Unit> units, const HeadTable* norms = nullptr);
  /// Over the rows of all texts. Throws ShapeError for a head that is not there.
  HeadSummary summary(HeadId id) const;
  /// Share of the judged texts in each of which, by the same rules and its own rows alone, the head has this role; 0 where none is judged.
  /// A syntactic role is not found in single texts.
  double share(HeadId id, const HeadRole& role) const;
  /// All roles the head has in single texts, the commonest first; the shares sum to 1.
  std::vector<std::pair<HeadRole, double>> shares(HeadId id) const;

 private:
  struct Sums {
    Index rows = 0;
    std::vector<double> measures = {};
    double spread = 0.0, sink = 0.0, special_norm = 0.0;
    std::map<Index, Index> offsets = {};  // of largest weights: how many rows
  };
  Sums sums_of(HeadId id, const HeadTable& table, std::span<const Unit> units, const HeadTable* norms) const;
  static HeadSummary mean_of(HeadId id, const Sums& sums);
  std::size_t place(HeadId id) const;

  Index layers_;
  Index heads_;
  RoleRules rules_;
  Index judged_ = 0;
  std::vector<Sums> sums_;                             // [layers, heads]
  std::vector<std::map<HeadRole, Index>> judgements_;  // [layers, heads]: texts
};

/// What became of one text.
struct SurveyedText {
  Index rows = 0;               // words (or pieces) read; 0: the text has none, nothing was added
  bool cut = false;             // longer than the model reads: its last pieces were left out
  std::vector<Index> ids = {};  // what the model has read
};

/// Runs a model over texts and adds each to a survey, with norms beside the weights. Keeps references to model and tokenizer.
class TextSurveyor {
 public:
  TextSurveyor(const Transformer& model, const Tokenizer& tokenizer, bool by_pieces = false);

  /// Throws FormatError where the text is not UTF-8, ShapeError where the survey is of another model's size.
  SurveyedText add(const std::string& text, HeadSurvey& survey, Workspace& workspace) const;

 private:
  const Transformer& model_;
  const Tokenizer& tokenizer_;
  bool by_pieces_;
  ValueGrams grams_;
};

}  // namespace mha
