// Ranking of links and readings over a HeadTable.
#include "mha/analysis/links.h"

#include <algorithm>

namespace mha {
namespace {

/// Calls `visit` for every head, layer by layer.
template <class Visit>
void for_each_head(const HeadTable& table, Visit visit) {
  for (Index layer = 0; layer < table.layers(); ++layer) {
    for (Index head = 0; head < table.heads(); ++head) visit(HeadId{layer, head});
  }
}

void sort_by_weight(std::vector<HeadLink>& links) {
  std::stable_sort(links.begin(), links.end(), [](const HeadLink& a, const HeadLink& b) { return a.weight > b.weight; });
}

}  // namespace

std::vector<HeadLink> ranked_links(const HeadTable& table, Index from, Index to) {
  std::vector<HeadLink> links;
  for_each_head(table, [&](HeadId id) { links.push_back({id, table.weight(id, from, to)}); });
  sort_by_weight(links);
  return links;
}

HeadLink strongest_head(const HeadTable& table, Index from, Index to) {
  HeadLink best{.id = {}, .weight = table.weight({}, from, to)};
  for_each_head(table, [&](HeadId id) {
    const float weight = table.weight(id, from, to);
    if (weight > best.weight) best = {id, weight};
  });
  return best;
}

Index strongest(const HeadTable& table, HeadId id, Index from, std::span<const Index> competitors) {
  Index best = -1;
  for (Index to : competitors) {
    if (to == from) continue;
    if (best < 0 || table.weight(id, from, to) > table.weight(id, from, best)) best = to;
  }
  return best;
}

std::vector<HeadLink> heads_with_strongest(const HeadTable& table, Index from, Index to, std::span<const Index> competitors) {
  std::vector<HeadLink> found;
  for_each_head(table, [&](HeadId id) {
    if (strongest(table, id, from, competitors) == to) found.push_back({id, table.weight(id, from, to)});
  });
  sort_by_weight(found);
  return found;
}

std::vector<HeadChain> heads_with_chain(const HeadTable& table, Index a, Index b, Index c, std::span<const Index> competitors) {
  std::vector<HeadChain> found;
  for_each_head(table, [&](HeadId id) {
    if (strongest(table, id, a, competitors) != b || strongest(table, id, b, competitors) != c) return;
    found.push_back({id, table.weight(id, a, b), table.weight(id, b, c)});
  });
  std::stable_sort(found.begin(), found.end(),
                   [](const HeadChain& x, const HeadChain& y) { return x.first * x.second > y.first * y.second; });
  return found;
}

}  // namespace mha
