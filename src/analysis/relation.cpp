// The relation finder: plain reading of a table, one head after the other.
#include "mha/analysis/relation.h"

#include <algorithm>
#include <array>

#include "core/check.h"
#include "mha/error.h"

namespace mha {
namespace {

constexpr std::array<std::string_view, 5> kRanks = {"weight", "lift", "contrast", "back", "lift-back"};

std::optional<double> above(float weight, const std::optional<double>& usual) {
  return usual ? std::optional(static_cast<double>(weight) - *usual) : std::nullopt;
}

std::optional<double> number(const WordRelation& relation, RelationRank by) {
  switch (by) {
    case RelationRank::Weight:
      return static_cast<double>(relation.weight);
    case RelationRank::Lift:
      return relation.lift();
    case RelationRank::Contrast:
      return relation.contrast;
    case RelationRank::Back:
      return static_cast<double>(relation.back);
    case RelationRank::LiftBack:
      return relation.lift_back();
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> WordRelation::lift() const { return above(weight, usual); }
std::optional<double> WordRelation::lift_back() const { return above(back, usual_back); }

std::span<const std::string_view> relation_ranks() { return kRanks; }

std::vector<WordRelation> find_relation(const HeadTable& table, std::span<const Unit> units, const RelationQuery& query,
                                        const UsualWeights* usual) {
  const Index count = table.units();
  MHA_CHECK(ShapeError, static_cast<Index>(units.size()) == count, "find_relation: ", units.size(), " units for a table of ", count);
  for (const Index unit : {query.from, query.to, query.rather_than.value_or(query.to)}) {
    MHA_CHECK(ShapeError, unit >= 0 && unit < count, "find_relation: unit ", unit, " of ", count);
  }
  const std::optional<Index> distance = word_distance(units, query.from, query.to);
  const auto usual_at = [&](HeadId id, Index sign) {
    return usual != nullptr && distance ? usual->at(id, sign * *distance) : std::nullopt;
  };
  std::vector<WordRelation> found;
  for (Index layer = 0; layer < table.layers(); ++layer) {
    for (Index head = 0; head < table.heads(); ++head) {
      const HeadId id{layer, head};
      if (!table.present(id)) continue;
      WordRelation relation{.id = id,
                            .weight = table.weight(id, query.from, query.to),
                            .back = table.weight(id, query.to, query.from),
                            .usual = usual_at(id, 1),
                            .usual_back = usual_at(id, -1),
                            .contrast = std::nullopt};
      if (query.rather_than) {
        relation.contrast = static_cast<double>(relation.weight) - static_cast<double>(table.weight(id, query.from, *query.rather_than));
      }
      found.push_back(relation);
    }
  }
  return found;
}

void rank_relations(std::vector<WordRelation>& relations, RelationRank by) {
  std::stable_sort(relations.begin(), relations.end(), [by](const WordRelation& a, const WordRelation& b) {
    const std::optional<double> x = number(a, by);
    const std::optional<double> y = number(b, by);
    return x && y ? *x > *y : x.has_value() && !y.has_value();
  });
}

}  // namespace mha
