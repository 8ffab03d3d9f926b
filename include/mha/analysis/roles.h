// What a head does, as a name, where its numbers are clear enough for one. The rules are few, on purpose strict, and all in RoleRules; most
// heads have no role. A role says what a head attends to, not what the model needs it for.
//
//   mha::HeadRole role = mha::role_of(survey.summary({.layer = 0, .head = 2}));
//   std::string name = mha::role_name(role);  // "previous"
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mha/analysis/intervention.h"
#include "mha/analysis/measures.h"
#include "mha/analysis/relation_scores.h"

namespace mha {

/// One head over rows: the units of texts that attend, special ones left out, and rows that hold a NaN or no weight. Means of no row are
/// NaN.
struct HeadSummary {
  HeadId id;
  Index rows = 0;
  std::vector<double> measures = {};  // means over the rows, in the order of measures()
  double spread = 0.0;                // mean of a row's entropy / ln n, n the units of its text: 0 one unit, 1 all alike
  double sink = 0.0;                  // mean weight on the text's first unit
  double special_norm = 0.0;          // mean share of special units in what is carried (norms.h); NaN where norms were not given
  Index offset = 0;                   // the commonest place of a row's largest weight, from the row: -1 is the unit just before
  double at_offset = 0.0;             // share of the rows whose largest weight is there

  double measure(Measure which) const;
};

/// A relation that a head was found to point along on a treebank: what decides a syntactic role.
struct RelationFinding {
  HeadId id;
  std::string relation;  // "nsubj"
  Direction direction = Direction::FromDependent;
  double accuracy = 0.0;  // share of the relation's arcs that the head finds
  double baseline = 0.0;  // the same of the best fixed offset
  double stable = 0.0;    // share of the sentences with such an arc in which the head finds at least half of them
};

/// Of every relation with at least `least` arcs in `report` the best head in each direction, chosen on `choose`, where it is above the
/// best offset by more than chance has it (the lift's 95 % interval). All numbers are of `report`. Throws as score_relations.
std::vector<RelationFinding> relation_findings(const TreebankAnswers& choose, const TreebankAnswers& report, Index least = 20);

/// From when on a role is clear. Borders that no source gives are ours.
struct RoleRules {
  Index least_rows = 5;     // fewer rows show nothing (ours)
  double positional = 0.9;  // share of rows whose largest weight is at one offset (Voita et al. 2019, arXiv 1905.09418)
  double syntactic = 0.1;   // accuracy - baseline (Voita et al. 2019: 10 %, which is less where the baseline is below 1)
  double found = 0.5;       // ... and accuracy itself: at least half of the arcs (ours)
  double special = 0.5;     // mean weight on special units (Clark et al. 2019, arXiv 1906.04341, on [SEP]: "over half")
  double broad = 0.9;       // spread (Clark et al. 2019 call heads broad whose entropy is near that of a uniform one; border ours)
};

/// In the order in which they are asked for: the first that holds is a head's role.
enum class RoleKind : std::uint8_t { Previous, Next, Positional, Syntactic, Special, Broad, None };

struct HeadRole {
  RoleKind kind = RoleKind::None;
  Index offset = 0;           // of Previous (-1), Next (1) and Positional (any other)
  std::string relation = {};  // of Syntactic: "nsubj->head" or "head->nsubj"
  friend auto operator<=>(const HeadRole&, const HeadRole&) = default;
};

/// "previous", "next", "at +2" (the unit itself: "at 0"), "nsubj->head", "special", "broad"; "-" where none is clear.
std::string role_name(const HeadRole& role);

/// The finding about that head that is farthest above its baseline; nullptr where none is far enough for a role.
const RelationFinding* clearest_finding(HeadId id, std::span<const RelationFinding> findings, const RoleRules& rules = {});

/// The role of a head by its summary and by those of `findings` that are about it, the one farthest above its baseline.
HeadRole role_of(const HeadSummary& summary, const RoleRules& rules = {}, std::span<const RelationFinding> findings = {});

}  // namespace mha
