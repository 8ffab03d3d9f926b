// The relation finder: which heads tie word A to word B, beside what each is held against: the competing word C, the head's usual weight at
// that distance, and the other direction. A pure function over a HeadTable.
//
//   std::vector<mha::WordRelation> heads = mha::find_relation(table, sentence.words, {.from = telescope, .to = man}, &usual);
//   mha::rank_relations(heads, mha::RelationRank::Lift);
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "mha/analysis/head_table.h"
#include "mha/analysis/usual.h"

namespace mha {

/// What is looked for: A -> B, rather than A -> C where a competing unit is named.
struct RelationQuery {
  Index from = 0;                         // A, the unit that attends
  Index to = 0;                           // B
  std::optional<Index> rather_than = {};  // C
};

/// A -> B in one head.
struct WordRelation {
  HeadId id;
  float weight = 0.0F;                 // alpha(A -> B)
  float back = 0.0F;                   // alpha(B -> A)
  std::optional<double> usual;         // the head's mean weight at the signed distance from A to B; absent where unknown
  std::optional<double> usual_back;    // at that from B to A
  std::optional<double> contrast;      // alpha(A -> B) - alpha(A -> C), where C is named
  std::optional<double> lift() const;  // weight - usual
  std::optional<double> lift_back() const;
};

enum class RelationRank : std::uint8_t { Weight, Lift, Contrast, Back, LiftBack };
/// "weight", "lift", "contrast", "back", "lift-back": the names by which a rank is asked for, in the enumeration's order.
std::span<const std::string_view> relation_ranks();

/// The relation in every head, layer by layer, those removed from the model left out. `usual`, which may be absent, is of the same model.
/// Throws ShapeError for a unit that is not in the table, units of another sentence, or usual weights of another model's size.
std::vector<WordRelation> find_relation(const HeadTable& table, std::span<const Unit> units, const RelationQuery& query,
                                        const UsualWeights* usual);

/// Largest first; those where the number is absent last, equal ones as they stood.
void rank_relations(std::vector<WordRelation>& relations, RelationRank by);

}  // namespace mha
