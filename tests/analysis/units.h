// Small hand-made sentences and tables of weights, for the tests of src/analysis that need no model.
#pragma once

#include <string>
#include <vector>

#include "mha/analysis/head_table.h"

namespace mha::test {

/// A unit of one piece whose key is its text.
inline Unit unit(const std::string& text, Index first, bool special = false) {
  return {.text = text, .key = text, .first = first, .count = 1, .special = special};
}

/// [CLS], the given words, [SEP], one piece each.
inline std::vector<Unit> sentence_of(const std::vector<std::string>& words) {
  std::vector<Unit> units = {unit("[CLS]", 0, true)};
  for (const std::string& word : words) units.push_back(unit(word, static_cast<Index>(units.size())));
  units.push_back(unit("[SEP]", static_cast<Index>(units.size()), true));
  return units;
}

/// Writes one head of a table, row by row.
inline void fill(HeadTable& table, HeadId id, const std::vector<std::vector<float>>& rows) {
  float* out = table.head(id).as<float>();
  for (const std::vector<float>& row : rows) {
    for (float weight : row) *out++ = weight;
  }
}

}  // namespace mha::test
