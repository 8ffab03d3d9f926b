// The microscope's runs of a file, drawn.
#include "mha/view/captured_picture.h"

#include <algorithm>

#include "core/check.h"
#include "mha/error.h"
#include "view/tables.h"

namespace mha {
namespace {

using view::Lens;
using view::Run;

constexpr Index kMostCells = Index{1} << 26;

std::shared_ptr<const Run> run_named(const CaptureFile& file, const std::string& name) {
  std::string names;
  for (const std::shared_ptr<const Run>& run : view::runs_of(file)) {
    if (run->id == name) return run;
    if (names.size() < 200) names += (names.empty() ? "" : ", ") + run->id;
  }
  throw Error(core::join(file.path, ": no run \"", name, "\"; there are ", names));
}

void check_head(const Run& run, HeadId id) {
  const auto layers = static_cast<Index>(run.capture.layers.size());
  MHA_CHECK(Error, id.layer >= 0 && id.layer < layers, "picture: layer is ", id.layer, ", run ", run.id, " has ", layers, " layers");
  const Index heads = run.capture.layers[static_cast<std::size_t>(id.layer)].heads();
  MHA_CHECK(Error, id.head >= 0 && id.head < heads, "picture: head is ", id.head, ", layer ", id.layer, " has ", heads, " heads");
}

/// All heads of a run, or those asked for.
std::vector<HeadId> heads_of(const Run& run, std::vector<HeadId> heads) {
  for (HeadId id : heads) check_head(run, id);
  if (!heads.empty()) return heads;
  for (Index layer = 0; layer < static_cast<Index>(run.capture.layers.size()); ++layer) {
    for (Index head = 0; head < run.capture.layers[static_cast<std::size_t>(layer)].heads(); ++head) heads.push_back({layer, head});
  }
  return heads;
}

/// Nothing but the caller's own patience ends it.
struct Patience {
  Workspace workspace;
  view::Stop stop{workspace.executor(), 1e8, nullptr};
};

}  // namespace

Picture captured_picture(const CaptureFile& file, const CapturedWish& wish) {
  const std::shared_ptr<const Run> run = run_named(file, wish.run);
  Patience patience;
  const Lens lens{.run = *run,
                  .stop = patience.stop,
                  .workspace = patience.workspace,
                  .unit = wish.pieces ? view::UnitKind::Piece : view::UnitKind::Word};
  Picture picture{.text = run->text, .model = file.model, .pieces = wish.pieces, .queries = lens.rows()};
  if (!run->is_self()) picture.keys = lens.columns();
  const std::vector<HeadId> heads = heads_of(*run, wish.heads);
  const auto rows = static_cast<Index>(lens.rows().size());
  const auto columns = static_cast<Index>(lens.columns().size());
  const Index cells = rows * columns;
  MHA_CHECK(Error, cells <= kMostCells / static_cast<Index>(heads.size()), "picture: ", heads.size(), " tables of ", rows, " x ", columns,
            " weights are more than ", kMostCells, ": ask for fewer heads, or for a pooled map of one");
  const auto kept = std::make_shared<std::vector<float>>(static_cast<std::size_t>(cells) * heads.size());
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const auto table = std::span(*kept).subspan(i * static_cast<std::size_t>(cells), static_cast<std::size_t>(cells));
    view::head_table(lens, heads[i], table);
    picture.heads.push_back({.id = heads[i], .weights = ConstTensorView(table.data(), {rows, columns})});
  }
  picture.owner = kept;
  return picture;
}

Tensor captured_map(const CaptureFile& file, const std::string& name, HeadId head, Index size) {
  const std::shared_ptr<const Run> run = run_named(file, name);
  check_head(*run, head);
  Patience patience;
  const Lens lens{.run = *run, .stop = patience.stop, .workspace = patience.workspace, .unit = view::UnitKind::Piece};
  const CapturedLayer& layer = lens.layer(head.layer);
  const view::MapTile tile{.id = head,
                           .queries = {0, layer.q_len()},
                           .keys = {0, layer.kv_len()},
                           .rows = std::min(size, layer.q_len()),
                           .columns = std::min(size, layer.kv_len()),
                           .max = true};
  const std::vector<float> cells = view::map_tile(lens, tile);
  Tensor map(DType::F32, {tile.rows, tile.columns});
  std::copy(cells.begin(), cells.end(), map.data<float>());
  return map;
}

}  // namespace mha
