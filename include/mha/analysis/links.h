// Links between words in every head: how much one word attends to another, which word each attends to most, which heads show a reading.
// Pure functions over a HeadTable; heads that were removed from the model (HeadTable::present) are left out.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "mha/analysis/head_table.h"
#include "mha/analysis/usual.h"

namespace mha {

struct HeadLink {
  HeadId id;
  float weight = 0.0F;
};

/// The link `from` -> `to` in every head, largest weight first; equal weights by layer, then head.
std::vector<HeadLink> ranked_links(const HeadTable& table, Index from, Index to);

/// The unit among `competitors`, `from` itself left out, that `from` attends to most in this head; the earlier of equals. -1: none
/// competes, or the head was removed.
Index strongest(const HeadTable& table, HeadId id, Index from, std::span<const Index> competitors);

/// Heads where `from`'s strongest competitor is `to`, largest weight first.
std::vector<HeadLink> heads_with_strongest(const HeadTable& table, Index from, Index to, std::span<const Index> competitors);

struct HeadChain {
  HeadId id;
  float first = 0.0F;   // weight of a -> b
  float second = 0.0F;  // weight of b -> c
};

/// Heads where a's strongest competitor is b and b's strongest is c, largest product of the two weights first.
std::vector<HeadChain> heads_with_chain(const HeadTable& table, Index a, Index b, Index c, std::span<const Index> competitors);

/// A link from one unit, in the head in which it stands out most.
struct StandingLink {
  Index to = 0;
  HeadLink link;
  std::optional<double> usual;  // the head's usual weight at that distance; absent where unknown
  Index heads = 0;              // in how many heads it is the unit's strongest
};

/// The links of `from` that are its strongest in some head, each in that of those heads in which its weight is farthest above what is usual
/// at its distance (above 0 without `usual`, whose weights are by words), farthest first.
std::vector<StandingLink> standing_links(const HeadTable& table, std::span<const Unit> units, Index from,
                                         std::span<const Index> competitors, const UsualWeights* usual);

/// A head in which units attend to the neighbour at a fixed distance.
struct NeighbourHead {
  HeadId id;
  double share = 0.0;   // of the units that have such a neighbour: how many attend to it most
  double weight = 0.0;  // their mean weight on it
};

/// Heads in which at least `least_share` of the competitors attend most to the competitor `offset` places away (-1: the one just before),
/// largest mean weight first.
std::vector<NeighbourHead> heads_with_neighbour(const HeadTable& table, Index offset, std::span<const Index> competitors,
                                                double least_share);

}  // namespace mha
