// Any bytes as a capture file: an mha::Error, or layers whose weights and tokens can be looked at wherever the header says they are.
#include <algorithm>

#include "fuzz/fuzz.h"
#include "mha/analysis/capture_file.h"
#include "mha/error.h"

namespace mha::test {
namespace {

void check_units(const CapturedUnits& units, Index count) {
  require(static_cast<Index>(units.pieces.size()) == count, "every position is a piece");
  Index end = 0;
  for (const Unit& word : units.words) {
    require(word.first == end && word.count >= 1, "words follow each other");
    end += word.count;
    touch(std::as_bytes(std::span(word.text)));
  }
  require(end == count, "every piece is of a word");
}

void check_side(const CaptureFile& file, const std::string& side, Index entry, Index length) {
  const Interval part = captured_tokens(file, side, entry, length);
  require(part.lo >= 0 && part.lo < part.hi && part.hi <= length, "tokens stand in the length");
  check_units(captured_units(file, side, entry, part), part.hi - part.lo);
}

void check_layer(const CaptureFile& file, std::size_t index, Workspace& workspace) {
  const CapturedLayer& layer = file.capture.layers[index];
  const Interval queries{layer.q_len() - std::min<Index>(layer.q_len(), 2), layer.q_len()};
  const Interval keys{0, std::min<Index>(layer.kv_len(), 64)};
  Tensor weights(DType::F32, {queries.hi - queries.lo, keys.hi});
  for (const Index entry : {Index{0}, layer.batch() - 1}) {
    captured_weights(layer, {.batch = entry, .head = layer.heads() - 1, .queries = queries, .keys = keys}, weights, workspace);
    touch(std::as_bytes(std::span(weights.data<float>(), static_cast<std::size_t>(element_count(weights.shape())))));
    check_side(file, file.sides[index].queries, entry, layer.q_len());
    check_side(file, file.sides[index].keys, entry, layer.kv_len());
  }
}

}  // namespace
}  // namespace mha::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  mha::test::set_file({data, size});
  try {
    const mha::CaptureFile file = mha::load_capture("fuzz");
    mha::Workspace workspace(mha::serial_executor());
    const mha::Index batch = file.capture.layers.front().batch();
    mha::test::require(file.texts.empty() || static_cast<mha::Index>(file.texts.size()) == batch, "one text an entry of the batch");
    for (const auto& [name, tokens] : file.tokens) mha::test::require(tokens.ids.size(0) == batch, "tokens of the batch");
    for (std::size_t i = 0; i < file.capture.layers.size(); ++i) mha::test::check_layer(file, i, workspace);
  } catch (const mha::Error& error) {
    mha::test::require_line(error);
  }
  return 0;
}
