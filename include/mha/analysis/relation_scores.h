// Which head finds which relation of a treebank, how often, and how much better than looking a fixed number of words away. Heads,
// directions and offsets are chosen on one treebank and reported on another: the best of many heads is always a little better on the
// sentences that it was chosen on.
//
//   std::vector<mha::RelationScore> scores = mha::score_relations(dev, test);
//   std::optional<mha::AttachmentScore> telescope = mha::score_attachment(dev, test);
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mha/analysis/treebank.h"

namespace mha {

/// A share of yeses with its 95 % interval.
struct Share {
  Index yes = 0;
  Index of = 0;
  double low = 0;
  double high = 1;
  double value() const { return of == 0 ? 0 : static_cast<double>(yes) / static_cast<double>(of); }
};

/// Yeses and questions of one sentence.
struct Tally {
  Index yes = 0;
  Index of = 0;
};

/// Wilson's score interval (1927), with the number of questions divided by how much more the share varies than if they were independent
/// (design effect over sentences, at least 1; Dean & Pagano 2015): arcs of a sentence are right and wrong together. All or none right: the
/// design effect is not known and taken as 1. Without questions: 0 to 1.
Share share_of(std::span<const Tally> sentences);

/// Difference of two shares over the same questions, sentence by sentence, with its 95 % interval.
struct Lift {
  double value = 0;
  double low = -1;
  double high = 1;
};

/// share_of(a) - share_of(b), from their intervals and the correlation of their errors over sentences (Zou & Donner 2008, after Newcombe
/// 1998). Throws ShapeError where the two are not over the same questions.
Lift lift_of(std::span<const Tally> a, std::span<const Tally> b);

/// The best head in one direction. Nothing chosen: `chosen.of` is 0.
struct DirectionScore {
  HeadId head;
  Share chosen;  // where it was chosen; its interval is not to be believed
  Share score;   // where it is reported
  Lift lift;     // above the baseline, where it is reported
};

struct RelationScore {
  std::string relation;  // kAllRelations: all arcs
  Index offset = 0;      // the head is so many words after the dependent (before: negative), best where chosen
  Share baseline;        // of that offset, where it is reported
  std::array<DirectionScore, kDirections> directions;
  Direction best = Direction::FromDependent;  // where chosen
};
inline constexpr const char* kAllRelations = "(all)";

/// All relations of `report`, the most frequent first, before them kAllRelations. Ties in choosing go to the earlier layer and head, and to
/// the shorter offset. Pass the same object twice to see what choosing alone gives. Throws ShapeError for different numbers of heads.
std::vector<RelationScore> score_relations(const TreebankAnswers& choose, const TreebankAnswers& report);

/// The best head from one viewpoint.
struct ViewpointScore {
  HeadId head;
  Share chosen;
  Share score;
  Lift lift;                 // above the majority
  Share of_verbs, of_nouns;  // of the cases attached to the verb, to the noun: how many it gets right
};

/// The telescope question: verb - noun - preposition - noun, see TreebankAnswers::add.
struct AttachmentScore {
  Index verbs = 0, nouns = 0;                // where reported
  Index chosen_verbs = 0, chosen_nouns = 0;  // where chosen
  bool majority_verb = false;                // where chosen
  Share majority;                            // that answer to every case, where reported
  Share by_preposition;                      // the answer most frequent for the same preposition where chosen (majority for a new one)
  std::array<ViewpointScore, kViewpoints> viewpoints;
  Viewpoint best = Viewpoint::Preposition;  // where chosen
};

/// Nothing where one of the two has no case. Throws ShapeError for different numbers of heads.
std::optional<AttachmentScore> score_attachment(const TreebankAnswers& choose, const TreebankAnswers& report);

}  // namespace mha
