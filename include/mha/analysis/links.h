// Links between words in every head: how much one word attends to another, which word each attends to most, which heads show a reading.
// Pure functions over a HeadTable.
#pragma once

#include <span>
#include <vector>

#include "mha/analysis/head_table.h"

namespace mha {

struct HeadLink {
  HeadId id;
  float weight = 0.0F;
};

/// The link `from` -> `to` in every head, largest weight first; equal weights by layer, then head.
std::vector<HeadLink> ranked_links(const HeadTable& table, Index from, Index to);

/// The head with the largest weight on `from` -> `to`; the earlier of equals. Throws ShapeError for a model without heads.
HeadLink strongest_head(const HeadTable& table, Index from, Index to);

/// The unit among `competitors`, `from` itself left out, that `from` attends to most in this head; the earlier of equals. -1: none
/// competes.
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

}  // namespace mha
