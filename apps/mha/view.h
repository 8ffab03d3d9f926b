// `mha view` between its two halves: cmd_view.cpp gathers what there is to see, view_text.cpp lays it out for a terminal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mha/analysis/links.h"
#include "mha/analysis/measures.h"
#include "terminal.h"
#include "view_change.h"

namespace mha::app {

/// The telescope question, asked where man, astronomer and telescope are each one word of the text.
struct Readings {
  std::string man, astronomer, telescope;      // as written in the text
  std::vector<HeadLink> first;                 // man -> telescope is man's strongest
  std::vector<HeadChain> second;               // man -> astronomer is man's strongest, astronomer -> telescope is astronomer's
  std::vector<HeadLink> telescope_man;         // all heads, ranked
  std::vector<HeadLink> telescope_astronomer;  // all heads, ranked
};

/// The links of one word that stand out, farthest above usual first.
struct WordLinks {
  Index from = 0;
  std::vector<StandingLink> to;
};

struct View {
  std::string text;
  std::string model;
  std::string size;      // of the model: layers and heads
  bool pieces = false;   // units are pieces, not words
  bool special = false;  // special units are shown and compete
  std::vector<Unit> units;
  std::vector<std::string> names;  // of units: "man", "the#1"
  std::vector<Index> shown;        // units shown, as rows and as competitors
  HeadTable table;
  MeasureInfo measure;
  std::vector<std::vector<double>> map;  // [layers][heads]
  std::optional<Readings> readings;
  std::vector<WordLinks> links;               // one per shown unit, where there are no readings
  std::vector<NeighbourHead> previous, next;  // heads that look at the word just before, just after
  std::optional<Change> change;               // where one was asked for: all of the above is after it
};

/// Sentence, map, readings or links that stand out, neighbours, what a change moved.
std::string view_text(const View& view, const Terminal& terminal);
/// Sentence and one head's whole table.
std::string head_text(const View& view, HeadId id, const Terminal& terminal);

}  // namespace mha::app
