// Usual weights by distance: accumulated sentence by sentence over the embedded plain sentences.
#include "mha/analysis/usual.h"

#include <string_view>

#include "analysis/plain_sentences.h"
#include "core/check.h"
#include "mha/error.h"

namespace mha {
namespace {

constexpr Index kDistances = 2 * UsualWeights::kReach + 1;

std::size_t slot(Index distance) { return static_cast<std::size_t>(distance + UsualWeights::kReach); }

bool within_reach(Index distance) { return distance >= -UsualWeights::kReach && distance <= UsualWeights::kReach; }

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end != 0) lines.emplace_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return lines;
}

}  // namespace

UsualWeights::UsualWeights(Index layers_count, Index heads_count)
    : layers(layers_count),
      heads(heads_count),
      pairs(static_cast<std::size_t>(kDistances)),
      sums(static_cast<std::size_t>(element_count({layers_count, heads_count, kDistances}))) {}

void UsualWeights::add(const HeadTable& table, std::span<const Unit> words) {
  MHA_CHECK(ShapeError, table.layers() == layers && table.heads() == heads, "usual: a table of ", table.layers(), " x ", table.heads(),
            " heads for ", layers, " x ", heads);
  const std::vector<Index> plain = plain_units(words);
  const Index count = static_cast<Index>(plain.size());
  for (Index i = 0; i < count; ++i) {
    for (Index j = 0; j < count; ++j) {
      if (within_reach(j - i)) ++pairs[slot(j - i)];
    }
  }
  for (Index layer = 0; layer < layers; ++layer) {
    for (Index head = 0; head < heads; ++head) {
      const std::size_t base = static_cast<std::size_t>((layer * heads + head) * kDistances);
      for (Index i = 0; i < count; ++i) {
        const std::span<const float> row = table.row({layer, head}, plain[static_cast<std::size_t>(i)]);
        for (Index j = 0; j < count; ++j) {
          if (!within_reach(j - i)) continue;
          sums[base + slot(j - i)] += static_cast<double>(row[static_cast<std::size_t>(plain[static_cast<std::size_t>(j)])]);
        }
      }
    }
  }
}

std::optional<double> UsualWeights::at(HeadId id, Index distance) const {
  MHA_CHECK(ShapeError, id.layer >= 0 && id.layer < layers && id.head >= 0 && id.head < heads, "usual: layer ", id.layer, ", head ",
            id.head, " of ", layers, " x ", heads);
  if (seen(distance) == 0) return std::nullopt;
  const std::size_t base = static_cast<std::size_t>((id.layer * heads + id.head) * kDistances);
  return sums[base + slot(distance)] / static_cast<double>(seen(distance));
}

Index UsualWeights::seen(Index distance) const { return within_reach(distance) && !pairs.empty() ? pairs[slot(distance)] : 0; }

std::span<const std::string> plain_sentences() {
  static const std::vector<std::string> sentences = split_lines(analysis::plain_sentences_text());
  return sentences;
}

UsualWeights usual_weights(const Transformer& model, const Tokenizer& tokenizer, std::span<const std::string> sentences,
                           Workspace& workspace) {
  UsualWeights usual(model.config().layers, model.config().heads);
  for (const std::string& text : sentences) {
    const Sentence sentence = read_sentence(tokenizer, text);
    usual.add(read_heads(model, sentence.ids, sentence.words, workspace), sentence.words);
  }
  return usual;
}

std::optional<Index> word_distance(std::span<const Unit> units, Index from, Index to) {
  const auto position = [&](Index unit) {
    Index plain = 0;
    for (Index i = 0; i < unit; ++i) plain += units[static_cast<std::size_t>(i)].special ? 0 : 1;
    return plain;
  };
  if (units[static_cast<std::size_t>(from)].special || units[static_cast<std::size_t>(to)].special) return std::nullopt;
  return position(to) - position(from);
}

}  // namespace mha
