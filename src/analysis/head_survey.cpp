// Sums over rows by head, and one judgement per text.
#include "mha/analysis/head_survey.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "mha/error.h"

namespace mha {
namespace {

double special_share(std::span<const float> row, std::span<const Unit> units) {
  double sum = 0.0;
  for (std::size_t i = 0; i < units.size(); ++i) sum += units[i].special ? static_cast<double>(row[i]) : 0.0;
  return sum;
}

/// Whether the row says anything: no NaN, and some weight.
bool speaks(std::span<const float> row) {
  double sum = 0.0;
  for (const float weight : row) sum += static_cast<double>(weight);
  return sum > 0.0;
}

}  // namespace

HeadSurvey::HeadSurvey(Index layers, Index heads, const RoleRules& rules) : layers_(layers), heads_(heads), rules_(rules) {
  const auto count = static_cast<std::size_t>(element_count({layers, heads}));
  sums_.resize(count, {.measures = std::vector<double>(measures().size())});
  judgements_.resize(count);
}

std::size_t HeadSurvey::place(HeadId id) const {
  MHA_CHECK(ShapeError, id.layer >= 0 && id.layer < layers_ && id.head >= 0 && id.head < heads_, "survey: layer ", id.layer, ", head ",
            id.head, " of ", layers_, " x ", heads_);
  return static_cast<std::size_t>(id.layer * heads_ + id.head);
}

HeadSurvey::Sums HeadSurvey::sums_of(HeadId id, const HeadTable& table, std::span<const Unit> units, const HeadTable* norms) const {
  std::vector<Index> rows;
  for (const Index row : plain_units(units)) {
    if (speaks(table.row(id, row))) rows.push_back(row);
  }
  Sums sums{.rows = static_cast<Index>(rows.size()), .measures = {}};
  for (const MeasureInfo& info : measures()) {
    sums.measures.push_back(rows.empty() ? 0.0 : measure(info.measure, table, id, units, rows) * static_cast<double>(rows.size()));
  }
  const double most = std::log(static_cast<double>(units.size()));
  for (const Index from : rows) {
    const std::span<const float> row = table.row(id, from);
    const std::vector<Index> one = {from};
    sums.spread += most > 0.0 ? measure(Measure::Entropy, table, id, units, one) / most : 0.0;
    sums.sink += static_cast<double>(row.front());
    sums.special_norm += norms != nullptr ? special_share(norms->row(id, from), units) : std::numeric_limits<double>::quiet_NaN();
    ++sums.offsets[static_cast<Index>(std::max_element(row.begin(), row.end()) - row.begin()) - from];
  }
  return sums;
}

void HeadSurvey::add(const HeadTable& table, std::span<const Unit> units, const HeadTable* norms) {
  const HeadTable& beside = norms != nullptr ? *norms : table;
  MHA_CHECK(ShapeError, table.layers() == layers_ && table.heads() == heads_ && beside.layers() == layers_ && beside.heads() == heads_,
            "survey: tables of ", table.layers(), " x ", table.heads(), " and ", beside.layers(), " x ", beside.heads(), " heads for ",
            layers_, " x ", heads_);
  const auto count = static_cast<Index>(units.size());
  MHA_CHECK(ShapeError, table.units() == count && beside.units() == count, "survey: ", count, " units for tables of ", table.units(),
            " and ", beside.units());
  const bool judged = static_cast<Index>(plain_units(units).size()) >= rules_.least_rows;
  judged_ += judged ? 1 : 0;
  for (Index layer = 0; layer < layers_; ++layer) {
    for (Index head = 0; head < heads_; ++head) {
      const HeadId id{layer, head};
      const Sums one = sums_of(id, table, units, norms);
      Sums& all = sums_[place(id)];
      all.rows += one.rows;
      for (std::size_t i = 0; i < one.measures.size(); ++i) all.measures[i] += one.measures[i];
      all.spread += one.spread;
      all.sink += one.sink;
      all.special_norm += one.special_norm;
      for (const auto& [offset, rows] : one.offsets) all.offsets[offset] += rows;
      if (judged) ++judgements_[place(id)][role_of(mean_of(id, one), rules_)];
    }
  }
}

HeadSummary HeadSurvey::mean_of(HeadId id, const Sums& sums) {
  const auto mean = [&](double sum) {
    return sums.rows == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(sums.rows);
  };
  HeadSummary summary{.id = id, .rows = sums.rows};
  for (const double sum : sums.measures) summary.measures.push_back(mean(sum));
  summary.spread = mean(sums.spread);
  summary.sink = mean(sums.sink);
  summary.special_norm = mean(sums.special_norm);
  Index most = 0;
  for (const auto& [offset, rows] : sums.offsets) {
    if (rows <= most) continue;
    most = rows;
    summary.offset = offset;
  }
  summary.at_offset = mean(static_cast<double>(most));
  return summary;
}

HeadSummary HeadSurvey::summary(HeadId id) const { return mean_of(id, sums_[place(id)]); }

double HeadSurvey::share(HeadId id, const HeadRole& role) const {
  const std::map<HeadRole, Index>& texts = judgements_[place(id)];
  const auto found = texts.find(role);
  return found == texts.end() ? 0.0 : static_cast<double>(found->second) / static_cast<double>(judged_);
}

std::vector<std::pair<HeadRole, double>> HeadSurvey::shares(HeadId id) const {
  std::vector<std::pair<HeadRole, double>> all;
  for (const auto& [role, texts] : judgements_[place(id)])
    all.emplace_back(role, static_cast<double>(texts) / static_cast<double>(judged_));
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return all;
}

TextSurveyor::TextSurveyor(const Transformer& model, const Tokenizer& tokenizer, bool by_pieces)
    : model_(model), tokenizer_(tokenizer), by_pieces_(by_pieces), grams_(value_grams(output_projections(model), model.config().heads)) {}

SurveyedText TextSurveyor::add(const std::string& text, HeadSurvey& survey, Workspace& workspace) const {
  if (tokenizer_.encode(text, false).size() == 0) return {};
  const Sentence sentence = read_sentence(tokenizer_, text, model_.config().max_positions);
  const std::span<const Unit> units = by_pieces_ ? sentence.pieces : sentence.words;
  const auto rows = static_cast<Index>(plain_units(units).size());
  const Capture capture = capture_heads(model_, sentence.ids, workspace);
  const HeadTable norms = row_shares(fold_norms_by(capture, grams_, units, workspace));
  survey.add(fold_weights(capture, units, workspace), units, &norms);
  return {.rows = rows, .cut = sentence.left_out > 0, .ids = sentence.ids};
}

}  // namespace mha
