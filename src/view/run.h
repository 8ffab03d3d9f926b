// A run: one text through a model, or one entry of a file of captured tensors, with all that requests are answered from. Made here, kept by
// run_store.h; nothing in it changes after it is made.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mha/analysis/capture_file.h"
#include "mha/analysis/sentence.h"
#include "mha/view/microscope.h"
#include "view/request.h"
#include "view/respond.h"
#include "view/stop.h"

namespace mha::view {

/// What rows or columns of a table are. Texts are as they stand in the text.
struct UnitLists {
  std::vector<Unit> pieces;
  std::vector<Unit> words;
  const std::vector<Unit>& of(UnitKind kind) const { return kind == UnitKind::Word ? words : pieces; }
};

/// What a new run is asked to be.
struct RunWish {
  std::string text;
  std::vector<HeadId> zeroed = {}, mean = {};  // sorted, each once
  std::vector<Index> hidden = {};              // words, sorted, each once
  double temperature = 1.0;

  bool changes() const { return !zeroed.empty() || !mean.empty() || !hidden.empty() || temperature != 1.0; }
  Json changed() const;
  /// One string for everything: equal wishes and no others have the same.
  std::string key() const;
};

/// Reads a body. Throws RequestError (400) for anything that is no wish; heads and words are not looked for yet.
RunWish read_wish(const std::string& body);

struct Run {
  std::string id;
  std::string key;   // of the wish: two wishes of one id are told apart by it
  std::string name;  // of an entry of a file
  std::string text;
  Capture capture;  // every layer's batch is 1
  UnitLists queries;
  std::optional<UnitLists> keys;             // absent: as queries, attention of a text to itself
  std::vector<Index> ids;                    // of the pieces, where a model was run
  std::vector<double> vector;                // the sentence's, where a model was run
  std::vector<HeadId> removed;               // heads that the model no longer has
  std::vector<ConstTensorView> projections;  // W_O by layer, where the source has them
  Intervention intervention;                 // what was changed; its views point into `owner`
  std::shared_ptr<const void> owner;
  Json json;  // what GET answers

  const UnitLists& key_units() const { return keys ? *keys : queries; }
  bool is_self() const { return !keys; }
  Index heads() const;  // of all layers together
  std::size_t bytes() const;
};

/// 16 hexadecimal digits. Against accidents, not attackers: who asks by a key is given what has that key.
std::string content_id(std::string_view key);

/// Runs the model. `unchanged` is the run of the same text without changes, needed where the wish has some. Throws RequestError.
std::shared_ptr<const Run> make_run(const MicroscopeModel& model, const RunWish& wish, const Run* unchanged, Stop& stop);

/// The runs of a file, named "t0", "t1", ...: for each batch entry one per kind of table, layers of the same tokens and lengths together.
std::vector<std::shared_ptr<const Run>> runs_of(const CaptureFile& file);

Json units_json(const UnitLists& units);
Json layers_json(const Capture& capture);

}  // namespace mha::view
