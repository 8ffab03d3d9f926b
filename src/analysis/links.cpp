// Ranking of links and readings over a HeadTable.
#include "mha/analysis/links.h"

#include <algorithm>

namespace mha {
namespace {

/// Calls `visit` for every head that is there, layer by layer.
template <class Visit>
void for_each_head(const HeadTable& table, Visit visit) {
  for (Index layer = 0; layer < table.layers(); ++layer) {
    for (Index head = 0; head < table.heads(); ++head) {
      if (table.present({layer, head})) visit(HeadId{layer, head});
    }
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

Index strongest(const HeadTable& table, HeadId id, Index from, std::span<const Index> competitors) {
  Index best = -1;
  if (!table.present(id)) return best;
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

std::vector<StandingLink> standing_links(const HeadTable& table, std::span<const Unit> units, Index from,
                                         std::span<const Index> competitors, const UsualWeights* usual) {
  std::vector<StandingLink> links;
  const auto above = [](const StandingLink& link) { return static_cast<double>(link.link.weight) - link.usual.value_or(0.0); };
  for_each_head(table, [&](HeadId id) {
    const Index to = strongest(table, id, from, competitors);
    if (to < 0) return;
    const std::optional<Index> distance = word_distance(units, from, to);
    const StandingLink here{.to = to,
                            .link = {id, table.weight(id, from, to)},
                            .usual = usual != nullptr && distance ? usual->at(id, *distance) : std::nullopt,
                            .heads = 1};
    const auto known = std::find_if(links.begin(), links.end(), [to](const StandingLink& link) { return link.to == to; });
    if (known == links.end()) {
      links.push_back(here);
      return;
    }
    const Index heads = known->heads + 1;
    if (above(here) > above(*known)) *known = here;
    known->heads = heads;
  });
  std::stable_sort(links.begin(), links.end(), [&](const StandingLink& a, const StandingLink& b) { return above(a) > above(b); });
  return links;
}

std::vector<NeighbourHead> heads_with_neighbour(const HeadTable& table, Index offset, std::span<const Index> competitors,
                                                double least_share) {
  std::vector<NeighbourHead> found;
  const auto count = static_cast<Index>(competitors.size());
  for_each_head(table, [&](HeadId id) {
    Index rows = 0;
    Index strongest_rows = 0;
    double sum = 0.0;
    for (Index i = 0; i < count; ++i) {
      if (i + offset < 0 || i + offset >= count) continue;
      const Index from = competitors[static_cast<std::size_t>(i)];
      const Index to = competitors[static_cast<std::size_t>(i + offset)];
      ++rows;
      strongest_rows += strongest(table, id, from, competitors) == to ? 1 : 0;
      sum += static_cast<double>(table.weight(id, from, to));
    }
    if (rows == 0) return;
    const NeighbourHead head{id, static_cast<double>(strongest_rows) / static_cast<double>(rows), sum / static_cast<double>(rows)};
    if (head.share >= least_share) found.push_back(head);
  });
  std::stable_sort(found.begin(), found.end(), [](const NeighbourHead& a, const NeighbourHead& b) { return a.weight > b.weight; });
  return found;
}

}  // namespace mha
