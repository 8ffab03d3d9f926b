// The rules of roles, each one comparison. Sources are beside the borders (RoleRules).
#include "mha/analysis/roles.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/check.h"
#include "mha/error.h"

namespace mha {
namespace {

/// Share of the sentences with arcs of that relation in which the head finds at least half of them.
double sentences_found(const TreebankAnswers& answers, const std::string& relation, Direction direction, HeadId id) {
  std::map<Index, std::pair<Index, Index>> sentences;  // found, of how many
  for (std::size_t i = 0; i < answers.arcs().size(); ++i) {
    const TreebankAnswers::Arc& arc = answers.arcs()[i];
    if (answers.relations()[static_cast<std::size_t>(arc.relation)] != relation) continue;
    auto& [found, of] = sentences[arc.sentence];
    found += answers.finds(static_cast<Index>(i), direction, id) ? 1 : 0;
    ++of;
  }
  const auto held = std::count_if(sentences.begin(), sentences.end(), [](const auto& s) { return 2 * s.second.first >= s.second.second; });
  return sentences.empty() ? 0.0 : static_cast<double>(held) / static_cast<double>(sentences.size());
}

}  // namespace

std::vector<RelationFinding> relation_findings(const TreebankAnswers& choose, const TreebankAnswers& report, Index least) {
  std::vector<RelationFinding> findings;
  for (const RelationScore& score : score_relations(choose, report)) {
    if (score.relation == kAllRelations || score.baseline.of < least) continue;
    for (const Direction direction : {Direction::FromDependent, Direction::ToDependent}) {
      const DirectionScore& best = score.directions[static_cast<std::size_t>(direction)];
      if (best.chosen.of == 0 || best.lift.low <= 0.0) continue;
      findings.push_back({.id = best.head,
                          .relation = score.relation,
                          .direction = direction,
                          .accuracy = best.score.value(),
                          .baseline = score.baseline.value(),
                          .stable = sentences_found(report, score.relation, direction, best.head)});
    }
  }
  return findings;
}

const RelationFinding* clearest_finding(HeadId id, std::span<const RelationFinding> findings, const RoleRules& rules) {
  const RelationFinding* best = nullptr;
  const auto lift = [](const RelationFinding& f) { return f.accuracy - f.baseline; };
  for (const RelationFinding& finding : findings) {
    if (finding.id != id || !(lift(finding) >= rules.syntactic && finding.accuracy >= rules.found)) continue;
    if (best == nullptr || lift(finding) > lift(*best)) best = &finding;
  }
  return best;
}

double HeadSummary::measure(Measure which) const {
  const auto place = std::find_if(mha::measures().begin(), mha::measures().end(), [&](const MeasureInfo& m) { return m.measure == which; });
  const auto i = static_cast<std::size_t>(place - mha::measures().begin());
  MHA_CHECK(ShapeError, i < measures.size(), "summary: measure ", i, " of ", measures.size());
  return measures[i];
}

std::string role_name(const HeadRole& role) {
  switch (role.kind) {
    case RoleKind::Previous:
      return "previous";
    case RoleKind::Next:
      return "next";
    case RoleKind::Positional:
      return "at " + std::string(role.offset > 0 ? "+" : "") + std::to_string(role.offset);
    case RoleKind::Syntactic:
      return role.relation;
    case RoleKind::Special:
      return "special";
    case RoleKind::Broad:
      return "broad";
    case RoleKind::None:
      break;
  }
  return "-";
}

HeadRole role_of(const HeadSummary& summary, const RoleRules& rules, std::span<const RelationFinding> findings) {
  if (summary.rows >= rules.least_rows && summary.at_offset >= rules.positional) {
    const RoleKind kind = summary.offset == -1 ? RoleKind::Previous : summary.offset == 1 ? RoleKind::Next : RoleKind::Positional;
    return {.kind = kind, .offset = summary.offset};
  }
  if (const RelationFinding* finding = clearest_finding(summary.id, findings, rules)) {
    const bool to_head = finding->direction == Direction::FromDependent;
    return {.kind = RoleKind::Syntactic, .relation = to_head ? finding->relation + "->head" : "head->" + finding->relation};
  }
  if (summary.rows < rules.least_rows) return {};
  if (summary.measure(Measure::Special) >= rules.special) return {.kind = RoleKind::Special};
  if (summary.spread >= rules.broad) return {.kind = RoleKind::Broad};
  return {};
}

}  // namespace mha
