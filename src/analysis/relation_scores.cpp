// Choosing on one treebank, counting on another. Intervals are in shares.cpp.
#include "mha/analysis/relation_scores.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "core/check.h"
#include "mha/error.h"

namespace mha {
namespace {

/// Which arcs of a treebank are asked about: a relation's, or all.
std::vector<Index> arcs_of(const TreebankAnswers& answers, const std::string& relation) {
  std::vector<Index> found;
  for (std::size_t i = 0; i < answers.arcs().size(); ++i) {
    const std::string& name = answers.relations()[static_cast<std::size_t>(answers.arcs()[i].relation)];
    if (relation == kAllRelations || name == relation) found.push_back(static_cast<Index>(i));
  }
  return found;
}

/// Yeses by sentence; entries are in the order of sentences.
template <class Entries, class IsYes>
std::vector<Tally> tallies(const Entries& entries, std::span<const Index> chosen, IsYes is_yes) {
  std::vector<Tally> found;
  Index sentence = -1;
  for (const Index i : chosen) {
    const auto& entry = entries[static_cast<std::size_t>(i)];
    if (entry.sentence != sentence) found.emplace_back();
    sentence = entry.sentence;
    ++found.back().of;
    found.back().yes += is_yes(i) ? 1 : 0;
  }
  return found;
}

/// The head with the most yeses; the earlier of equals.
template <class IsYes>
HeadId best_head(const TreebankAnswers& answers, std::span<const Index> entries, IsYes is_yes) {
  HeadId best;
  Index most = -1;
  for (Index layer = 0; layer < answers.layers(); ++layer) {
    for (Index head = 0; head < answers.heads(); ++head) {
      if (!answers.present({layer, head})) continue;
      const Index yes = std::count_if(entries.begin(), entries.end(), [&](Index i) { return is_yes(i, HeadId{layer, head}); });
      if (yes > most) {
        most = yes;
        best = {layer, head};
      }
    }
  }
  return best;
}

/// The most frequent offset; of equals the shorter, then the one before.
Index best_offset(const TreebankAnswers& answers, std::span<const Index> arcs) {
  std::map<Index, Index> counts;
  for (const Index i : arcs) ++counts[answers.arcs()[static_cast<std::size_t>(i)].offset];
  Index best = 0;
  Index most = 0;
  for (const auto& [offset, count] : counts) {
    if (count > most || (count == most && std::abs(offset) < std::abs(best))) {
      best = offset;
      most = count;
    }
  }
  return best;
}

void check_alike(const TreebankAnswers& choose, const TreebankAnswers& report) {
  MHA_CHECK(ShapeError, choose.layers() == report.layers() && choose.heads() == report.heads(), "relation scores: chosen among ",
            choose.layers(), " x ", choose.heads(), " heads, reported on ", report.layers(), " x ", report.heads());
  MHA_CHECK(ShapeError, choose.layers() > 0 && choose.heads() > 0, "relation scores: a model without heads");
}

RelationScore score_relation(const TreebankAnswers& choose, const TreebankAnswers& report, const std::string& relation) {
  const std::vector<Index> to_choose = arcs_of(choose, relation);
  const std::vector<Index> to_report = arcs_of(report, relation);
  RelationScore score{.relation = relation, .offset = best_offset(choose, to_choose), .baseline = {}, .directions = {}};
  const auto baseline =
      tallies(report.arcs(), to_report, [&](Index i) { return report.arcs()[static_cast<std::size_t>(i)].offset == score.offset; });
  score.baseline = share_of(baseline);
  for (const Direction direction : {Direction::FromDependent, Direction::ToDependent}) {
    DirectionScore& out = score.directions[static_cast<std::size_t>(direction)];
    out.head = best_head(choose, to_choose, [&](Index i, HeadId id) { return choose.finds(i, direction, id); });
    out.chosen = share_of(tallies(choose.arcs(), to_choose, [&](Index i) { return choose.finds(i, direction, out.head); }));
    const auto found = tallies(report.arcs(), to_report, [&](Index i) { return report.finds(i, direction, out.head); });
    out.score = share_of(found);
    out.lift = lift_of(found, baseline);
  }
  if (score.directions[1].chosen.yes > score.directions[0].chosen.yes) score.best = Direction::ToDependent;
  return score;
}

std::vector<Index> all_cases(const TreebankAnswers& answers) {
  std::vector<Index> cases(answers.cases().size());
  for (std::size_t i = 0; i < cases.size(); ++i) cases[i] = static_cast<Index>(i);
  return cases;
}

const TreebankAnswers::Case& case_at(const TreebankAnswers& answers, Index i) { return answers.cases()[static_cast<std::size_t>(i)]; }

ViewpointScore score_viewpoint(const TreebankAnswers& choose, const TreebankAnswers& report, Viewpoint viewpoint,
                               std::span<const Tally> majority) {
  const auto right = [viewpoint](const TreebankAnswers& answers, Index i, HeadId id) {
    return answers.says_verb(i, viewpoint, id) == case_at(answers, i).verb;
  };
  const std::vector<Index> to_choose = all_cases(choose);
  const std::vector<Index> to_report = all_cases(report);
  ViewpointScore score;
  score.head = best_head(choose, to_choose, [&](Index i, HeadId id) { return right(choose, i, id); });
  score.chosen = share_of(tallies(choose.cases(), to_choose, [&](Index i) { return right(choose, i, score.head); }));
  const auto is_right = [&](Index i) { return right(report, i, score.head); };
  const std::vector<Tally> found = tallies(report.cases(), to_report, is_right);
  score.score = share_of(found);
  score.lift = lift_of(found, majority);
  for (const bool verb : {false, true}) {
    std::vector<Index> part;
    std::copy_if(to_report.begin(), to_report.end(), std::back_inserter(part), [&](Index i) { return case_at(report, i).verb == verb; });
    (verb ? score.of_verbs : score.of_nouns) = share_of(tallies(report.cases(), part, is_right));
  }
  return score;
}

Index verbs_in(const TreebankAnswers& answers) {
  return std::count_if(answers.cases().begin(), answers.cases().end(), [](const TreebankAnswers::Case& one) { return one.verb; });
}

}  // namespace

std::vector<RelationScore> score_relations(const TreebankAnswers& choose, const TreebankAnswers& report) {
  check_alike(choose, report);
  std::vector<RelationScore> scores;
  for (const std::string& relation : report.relations()) scores.push_back(score_relation(choose, report, relation));
  std::stable_sort(scores.begin(), scores.end(),
                   [](const RelationScore& a, const RelationScore& b) { return a.baseline.of > b.baseline.of; });
  scores.insert(scores.begin(), score_relation(choose, report, kAllRelations));
  return scores;
}

std::optional<AttachmentScore> score_attachment(const TreebankAnswers& choose, const TreebankAnswers& report) {
  check_alike(choose, report);
  if (choose.cases().empty() || report.cases().empty()) return std::nullopt;
  AttachmentScore score;
  score.verbs = verbs_in(report);
  score.chosen_verbs = verbs_in(choose);
  score.nouns = static_cast<Index>(report.cases().size()) - score.verbs;
  score.chosen_nouns = static_cast<Index>(choose.cases().size()) - score.chosen_verbs;
  score.majority_verb = score.chosen_verbs > score.chosen_nouns;
  std::map<std::string, Index> leaning;  // above 0: more often to the verb
  for (const TreebankAnswers::Case& one : choose.cases()) leaning[one.preposition] += one.verb ? 1 : -1;
  const auto by_preposition = [&](const TreebankAnswers::Case& one) {
    const auto known = leaning.find(one.preposition);
    return known == leaning.end() || known->second == 0 ? score.majority_verb : known->second > 0;
  };
  const std::vector<Index> cases = all_cases(report);
  const auto majority = tallies(report.cases(), cases, [&](Index i) { return case_at(report, i).verb == score.majority_verb; });
  score.majority = share_of(majority);
  score.by_preposition =
      share_of(tallies(report.cases(), cases, [&](Index i) { return case_at(report, i).verb == by_preposition(case_at(report, i)); }));
  for (const Viewpoint viewpoint : {Viewpoint::Preposition, Viewpoint::Object}) {
    score.viewpoints[static_cast<std::size_t>(viewpoint)] = score_viewpoint(choose, report, viewpoint, majority);
  }
  if (score.viewpoints[1].chosen.yes > score.viewpoints[0].chosen.yes) score.best = Viewpoint::Object;
  return score;
}

}  // namespace mha
