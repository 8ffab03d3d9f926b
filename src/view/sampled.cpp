// What goes through whole tables: measures, strongest links. Where a text is so long that all rows would take too long, an even choice of
// them is read, and the answer says how many.
#include <algorithm>
#include <array>
#include <queue>

#include "mha/analysis/measures.h"
#include "view/tables.h"

namespace mha::view {
namespace {

// Pairs that are looked at for one answer, which keeps it to some seconds: bench/serve_long.py tells how many.
constexpr double kMostPairs = 4e7;
constexpr Index kLeastRows = 16;

/// Rows that are read, as runs of consecutive ones, out of `rows` (ascending).
struct RowChoice {
  std::vector<Interval> runs;
  Index read = 0;
  Index of = 0;
  Json json() const { return {{"read", read}, {"of", of}}; }
};

RowChoice choose_rows(const std::vector<Index>& rows, double pairs_a_row) {
  const auto all = static_cast<Index>(rows.size());
  const auto most = std::max(kLeastRows, static_cast<Index>(kMostPairs / std::max(pairs_a_row, 1.0)));
  RowChoice choice{.runs = {}, .read = std::min(all, most), .of = all};
  for (Index i = 0; i < choice.read; ++i) {
    const Index row = rows[static_cast<std::size_t>(i * all / choice.read)];
    if (!choice.runs.empty() && choice.runs.back().hi == row) {
      ++choice.runs.back().hi;
    } else {
      choice.runs.push_back({row, row + 1});
    }
  }
  return choice;
}

struct Link {
  float weight;
  Index from, to;
  /// Stronger first; equals by place.
  friend bool operator<(const Link& a, const Link& b) {
    if (a.weight != b.weight) return a.weight > b.weight;
    return a.from != b.from ? a.from < b.from : a.to < b.to;
  }
};

/// Whether a measure means something where rows and columns are of different texts.
bool is_of_any_table(Measure which) { return which == Measure::Special || which == Measure::Entropy || which == Measure::Confidence; }

}  // namespace

Json strongest_links(const Lens& lens, HeadId id, Index count) {
  std::vector<Index> rows(lens.rows().size());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<Index>(i);
  const RowChoice choice = choose_rows(rows, static_cast<double>(lens.layer(id.layer).kv_len()));
  std::priority_queue<Link> kept;  // the weakest on top
  for (const Interval& run : choice.runs) {
    for_row_blocks(lens, id, run, [&](Index first, ConstTensorView table) {
      for (Index r = 0; r < table.size(0); ++r) {
        const float* row = table.as<float>() + r * table.stride(0);
        for (Index to = 0; to < table.size(1); ++to) {
          const Link link{row[to], first + r, to};
          if (!(link.weight > 0.0F) || (static_cast<Index>(kept.size()) == count && !(link < kept.top()))) continue;
          kept.push(link);
          if (static_cast<Index>(kept.size()) > count) kept.pop();
        }
      }
    });
  }
  Json links = Json::array();
  for (; !kept.empty(); kept.pop()) links.push_back({kept.top().from, kept.top().to, kept.top().weight});
  std::reverse(links.begin(), links.end());
  return {{"links", std::move(links)}, {"rows", choice.json()}};
}

Json measure_values(const Lens& lens) {
  Index pairs = 0;
  for (const CapturedLayer& layer : lens.run.capture.layers) pairs += layer.heads() * layer.kv_len();
  const RowChoice choice = choose_rows(plain_units(lens.rows()), static_cast<double>(pairs));
  Json values = Json::object();
  for (const MeasureInfo& info : measures()) values[std::string(info.name)] = Json::array();
  for (Index layer = 0; layer < static_cast<Index>(lens.run.capture.layers.size()); ++layer) {
    for (const MeasureInfo& info : measures()) values[std::string(info.name)].push_back(Json::array());
    for (Index head = 0; head < lens.layer(layer).heads(); ++head) {
      std::vector<double> sums(measures().size(), 0.0);
      for (const Interval& run : choice.runs) {
        for_row_blocks(lens, {layer, head}, run, [&](Index first, ConstTensorView table) {
          for (Index r = 0; r < table.size(0); ++r) {
            const std::span<const float> row(table.as<float>() + r * table.stride(0), static_cast<std::size_t>(table.size(1)));
            for (std::size_t m = 0; m < sums.size(); ++m) {
              const Measure which = measures()[m].measure;
              if (lens.run.is_self() || is_of_any_table(which))
                sums[m] += measure_row(which, row, lens.columns(), lens.run.is_self() ? first + r : 0);
            }
          }
        });
      }
      for (std::size_t m = 0; m < sums.size(); ++m) {
        const bool removed = std::binary_search(lens.run.removed.begin(), lens.run.removed.end(), HeadId{layer, head});
        const bool told = choice.read > 0 && !removed && (lens.run.is_self() || is_of_any_table(measures()[m].measure));
        Json& list = values[std::string(measures()[m].name)].back();
        list.push_back(told ? Json(sums[m] / static_cast<double>(choice.read)) : Json(nullptr));
      }
    }
  }
  return {{"values", std::move(values)}, {"rows", choice.json()}};
}

}  // namespace mha::view
