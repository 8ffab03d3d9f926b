// `mha view` between its two halves: cmd_view.cpp gathers what there is to see, view_text.cpp lays it out for a terminal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mha/analysis/links.h"
#include "mha/analysis/measures.h"
#include "terminal.h"

namespace mha::app {

/// The telescope question, asked where man, astronomer and telescope are each one word of the text.
struct Readings {
  std::string man, astronomer, telescope;      // as written in the text
  std::vector<HeadLink> first;                 // man -> telescope is man's strongest
  std::vector<HeadChain> second;               // man -> astronomer is man's strongest, astronomer -> telescope is astronomer's
  std::vector<HeadLink> telescope_man;         // all heads, ranked
  std::vector<HeadLink> telescope_astronomer;  // all heads, ranked
};

/// Of all heads, the one in which `from` attends most to `to`.
struct StrongestLink {
  Index to = 0;
  HeadLink link;
};

/// The words that a word attends to most, each in its best head, largest weight first.
struct StrongestLinks {
  Index from = 0;
  std::vector<StrongestLink> to;
};

struct View {
  std::string text;
  std::string model;
  bool pieces = false;   // units are pieces, not words
  bool special = false;  // special units are shown and compete
  std::vector<Unit> units;
  std::vector<std::string> names;  // of units: "man", "the#1"
  std::vector<Index> shown;        // units shown, as rows and as competitors
  HeadTable table;
  MeasureInfo measure;
  std::vector<std::vector<double>> map;  // [layers][heads]
  std::optional<Readings> readings;
  std::vector<StrongestLinks> links;  // one per shown unit, where there are no readings
};

/// Sentence, map, readings or strongest links.
std::string view_text(const View& view, const Terminal& terminal);
/// Sentence and one head's whole table.
std::string head_text(const View& view, HeadId id, const Terminal& terminal);

}  // namespace mha::app
