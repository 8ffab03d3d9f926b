// Pictures and tables of heads to keep: pure functions from weights and units to the text of an SVG, the bytes of a PNG, CSV or JSON.
// Called by `mha export`; no file, no clock and no font is looked at, so the same weights give the same bytes. Colours: viridis on a fixed
// scale from 0 to 1, never stretched to what is there. Text from outside is escaped.
//
//   mha::Picture picture{.text = sentence.text, .queries = sentence.words};
//   picture.heads.push_back({.id = {.layer = 5, .head = 11}, .weights = weights});
//   std::string svg = mha::arcs_svg(picture);
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mha/analysis/intervention.h"
#include "mha/analysis/sentence.h"
#include "mha/tensor.h"

namespace mha {

/// A link that stands out, by positions in Picture::queries and Picture::keys.
struct PictureLink {
  Index from = 0;
  Index to = 0;
};

struct PictureHead {
  HeadId id;
  ConstTensorView weights;              // f32, [queries, keys], dense; NaN: hidden, nobody may look there
  std::string title = {};               // absent: only its numbers
  std::vector<PictureLink> marks = {};  // in the order in which they are told
};

struct Picture {
  std::string text = {};           // read by the model
  std::string model = {};          // its name
  std::string change = {};         // what was changed in the model, where something was: said in the picture
  bool pieces = false;             // units are pieces, not words
  std::vector<Unit> queries = {};  // rows
  std::vector<Unit> keys = {};     // columns; empty: as queries
  std::vector<PictureHead> heads = {};
  bool special = false;                    // draw special units; otherwise it is said how much they take
  double least = 0.05;                     // arcs: links below are not drawn, and it is said how much they are
  std::shared_ptr<const void> owner = {};  // of the weights, where the picture keeps them

  const std::vector<Unit>& columns() const { return keys.empty() ? queries : keys; }
};

/// Arcs along the sentence, a panel per head: above the words links to later ones, below to earlier ones, as wide as they weigh. At most
/// 500 a head, the strongest. Throws Error for cross-attention (keys of their own), ShapeError where weights or marks do not fit the units.
std::string arcs_svg(const Picture& picture);

/// Tables of weights, a panel per head: row attends, column is attended to; with numbers where there is room, marks outlined. Above 4,096
/// cells an image in the SVG, below it vectors. Throws ShapeError where weights or marks do not fit the units.
std::string matrix_svg(const Picture& picture);

/// All given heads as small tables, a row per layer; heads with marks outlined. Throws as matrix_svg.
std::string atlas_svg(const Picture& picture);

/// The same as pixels: one table, or all of them as an atlas where there are several. `cell` pixels a side of a weight, at least 1. A
/// palette image: index / 254 is the weight to 8 bits, index 255 is hidden or background. Throws as matrix_svg, Error where it would be
/// larger than 16,384 pixels a side.
std::string matrix_png(const Picture& picture, Index cell);

/// A map [rows, columns] of weights (attention_map) as such a PNG, a pixel a cell. Throws ShapeError where it is not f32 and dense.
std::string map_png(ConstTensorView map);

/// All weights in long form, RFC 4180: a line of names, then layer,head,query,key,query_text,key_text,weight; hidden ones have no weight.
/// Special units are among them. Numbers are the shortest that give the f32 back. Throws as matrix_svg.
std::string weights_csv(const Picture& picture);

/// The same as JSON, a table per head; hidden weights are null (docs/formats.md). Throws as matrix_svg.
std::string weights_json(const Picture& picture);

}  // namespace mha
