// The rules of roles, each one comparison. Sources are beside the borders (RoleRules).
#include "mha/analysis/roles.h"

#include <algorithm>

#include "core/check.h"
#include "mha/error.h"

namespace mha {
namespace {

/// The finding about the head that is farthest above its baseline; nullptr where none is far enough.
const RelationFinding* clearest(const HeadSummary& summary, const RoleRules& rules, std::span<const RelationFinding> findings) {
  const RelationFinding* best = nullptr;
  const auto lift = [](const RelationFinding& f) { return f.accuracy - f.baseline; };
  for (const RelationFinding& finding : findings) {
    if (finding.id != summary.id || !(lift(finding) >= rules.syntactic)) continue;
    if (best == nullptr || lift(finding) > lift(*best)) best = &finding;
  }
  return best;
}

}  // namespace

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
  if (const RelationFinding* finding = clearest(summary, rules, findings)) {
    return {.kind = RoleKind::Syntactic, .relation = finding->to_head ? finding->relation + " > head" : "head > " + finding->relation};
  }
  if (summary.rows < rules.least_rows) return {};
  if (summary.measure(Measure::Special) >= rules.special) return {.kind = RoleKind::Special};
  if (summary.spread >= rules.broad) return {.kind = RoleKind::Broad};
  return {};
}

}  // namespace mha
