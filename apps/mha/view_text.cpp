// The layout of `mha view` for a terminal.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "grid.h"
#include "view.h"

namespace mha::app {
namespace {

constexpr std::size_t kRankedLinks = 5;
constexpr int kLongestName = 20;

std::string name(const View& view, Index unit) { return printable(view.names[static_cast<std::size_t>(unit)]); }

std::string head_name(HeadId id) { return fmt::format("layer {:>2}  head {:>2}", id.layer, id.head); }

/// A paragraph, wrapped and indented by two.
std::string paragraph(const std::string& text, const Terminal& terminal) { return fmt::format("  {}\n", wrap(text, terminal.width, 2)); }

/// A section's title, with a line above it.
std::string title(const std::string& text, const Terminal& terminal) { return fmt::format("\n{}\n", bold(text, terminal)); }

std::string special_names(const View& view) {
  std::string names;
  for (const Unit& unit : view.units) {
    if (unit.special) names += fmt::format("{}{}", names.empty() ? "" : " and ", printable(unit.text));
  }
  return names.empty() ? "special tokens" : names;
}

std::string header(const View& view, const Terminal& terminal) {
  std::string words;
  for (Index unit : view.shown) words += fmt::format("{}{}", words.empty() ? "" : " ", shorten(name(view, unit), 2 * kLongestName));
  const char* kind = view.pieces ? "pieces" : "words";
  std::string out = bold(wrap(one_line(view.text), terminal.width, 0), terminal) + "\n";
  out += wrap(fmt::format("{}: {}", printable(view.model), view.size), terminal.width, 0);
  out += fmt::format("\n\n{}\n", bold(fmt::format("{} {}", view.shown.size(), kind), terminal));
  return out + paragraph(words, terminal);
}

std::string map_text(const View& view, const Terminal& terminal) {
  Grid grid{.corner = "layer\\head", .rows = {}, .columns = {}, .values = view.map, .top = view.measure.share ? 1.0 : 0.0};
  for (Index layer = 0; layer < view.table.layers(); ++layer) grid.rows.push_back(fmt::format("{:>10}", layer));
  for (Index head = 0; head < view.table.heads(); ++head) grid.columns.push_back(fmt::format("{}", head));
  for (const std::vector<double>& row : view.map) {
    for (double value : row) grid.top = std::max(grid.top, value);
  }
  std::string out = title(fmt::format("map: {}", view.measure.name), terminal);
  const char* unit = view.pieces ? "pieces" : "words";
  out += paragraph(fmt::format("{}; mean over the {}{}", view.measure.meaning, unit, view.measure.share ? ", from 0 to 1" : ""), terminal);
  out += draw(grid, terminal) + scale(grid, terminal);
  std::string others;
  for (const MeasureInfo& info : measures()) {
    if (info.name != view.measure.name) others += fmt::format("{}{}", others.empty() ? "" : ", ", info.name);
  }
  return out + paragraph(fmt::format("Other maps: --measure {}. One head's table: --layer L --head H.", others), terminal);
}

std::string first_reading(const View& view, const Readings& readings, const Terminal& terminal) {
  std::string out = title(fmt::format("reading 1: the {} has the {}", readings.man, readings.telescope), terminal);
  out += paragraph(fmt::format("Heads where {}'s strongest word is {}:", readings.man, readings.telescope), terminal);
  if (readings.first.empty()) out += "  none\n";
  for (const HeadLink& link : readings.first) {
    out += fmt::format("  {}   {} -> {} {:.3f}\n", head_name(link.id), readings.man, readings.telescope, link.weight);
  }
  out += title(fmt::format("reading 2: the {} has the {}", readings.astronomer, readings.telescope), terminal);
  out += paragraph(fmt::format("Heads where {}'s strongest is {}, and {}'s strongest is {}:", readings.man, readings.astronomer,
                               readings.astronomer, readings.telescope),
                   terminal);
  if (readings.second.empty()) out += "  none\n";
  for (const HeadChain& chain : readings.second) {
    out += fmt::format("  {}   {} -> {} {:.3f}   {} -> {} {:.3f}\n", head_name(chain.id), readings.man, readings.astronomer, chain.first,
                       readings.astronomer, readings.telescope, chain.second);
  }
  const std::string others =
      view.special ? fmt::format("{} included", special_names(view)) : fmt::format("{} left out", special_names(view));
  out += '\n';
  out += paragraph(
      fmt::format("Strongest: of all other {} of the text, punctuation included, {}.", view.pieces ? "pieces" : "words", others), terminal);
  return out;
}

std::string reverse_links(const Readings& readings, const Terminal& terminal) {
  const std::string left = fmt::format("{} -> {}", readings.telescope, readings.man);
  const std::string right = fmt::format("{} -> {}", readings.telescope, readings.astronomer);
  std::string out = title("the links the other way", terminal);
  out += fmt::format("  {}  {}\n", pad_right(left, 32), right);
  const std::size_t count = std::min(kRankedLinks, readings.telescope_man.size());
  const auto entry = [](const HeadLink& link) { return fmt::format("{}   {:.3f}", head_name(link.id), link.weight); };
  for (std::size_t i = 0; i < count; ++i) {
    out += fmt::format("  {}  {}\n", pad_right(entry(readings.telescope_man[i]), 32), entry(readings.telescope_astronomer[i]));
  }
  return out + paragraph(fmt::format("The {} strongest of {} heads; all: mha find --from {} --to {}", count, readings.telescope_man.size(),
                                     readings.telescope, readings.man),
                         terminal);
}

std::string times_usual(const StandingLink& link) {
  if (!link.usual || *link.usual <= 0.0) return "";
  const double times = static_cast<double>(link.link.weight) / *link.usual;
  return times < 9.95 ? fmt::format(" {:.1f}x", times) : times < 999.5 ? fmt::format(" {:.0f}x", times) : " >999x";
}

std::string links_text(const View& view, const Terminal& terminal) {
  const char* unit = view.pieces ? "piece" : "word";
  std::string out = title(fmt::format("each {}'s links that stand out", unit), terminal);
  out +=
      paragraph(fmt::format("To other {0}s of the text, {1} {2}, that are the {0}'s strongest in some head. Each in the head where it is "
                            "farthest above {3}: weight, {4}L layer, H head, and in how many heads it is the strongest.",
                            unit, special_names(view), view.special ? "included" : "left out",
                            view.pieces ? "0" : "the head's usual weight at that distance", view.pieces ? "" : "times the usual, "),
                terminal);
  const auto short_name = [&](Index unit_index) { return shorten(name(view, unit_index), kLongestName); };
  const auto item = [&](const StandingLink& link) {
    return fmt::format("{} {:.2f}{} L{}H{} ({})", short_name(link.to), link.link.weight, times_usual(link), link.link.id.layer,
                       link.link.id.head, link.heads);
  };
  int from_width = 0;
  int item_width = 0;
  for (const WordLinks& links : view.links) {
    from_width = std::max(from_width, display_width(short_name(links.from)));
    for (const StandingLink& link : links.to) item_width = std::max(item_width, display_width(item(link)));
  }
  for (const WordLinks& links : view.links) {
    std::vector<std::string> items;
    items.reserve(links.to.size() + 1);
    for (const StandingLink& link : links.to) items.push_back(&link == &links.to.back() ? item(link) : pad_right(item(link), item_width));
    if (items.empty()) items.push_back(fmt::format("none: there is no other {}", unit));
    out +=
        fmt::format("  {} -> {}\n", pad_right(short_name(links.from), from_width), wrap_items(items, "  ", terminal.width, from_width + 6));
  }
  out += '\n';
  return out + paragraph("All heads ranked by one link: mha find --from WORD --to WORD TEXT", terminal);
}

std::string neighbours_text(const View& view, const Terminal& terminal) {
  const char* unit = view.pieces ? "piece" : "word";
  std::string out = title("heads that look at a neighbour", terminal);
  out += paragraph(fmt::format("In which at least half of the {0}s attend to it most; with their mean weight on it.", unit), terminal);
  for (const auto& [where, heads] : {std::pair{"previous", &view.previous}, std::pair{"next", &view.next}}) {
    std::vector<std::string> items;
    for (const NeighbourHead& head : *heads) items.push_back(fmt::format("L{}H{} {:.2f}", head.id.layer, head.id.head, head.weight));
    if (items.empty()) items.emplace_back("none");
    out += fmt::format("  {:<9} {}  {}\n", where, unit, wrap_items(items, "  ", terminal.width, 14 + static_cast<int>(std::strlen(unit))));
  }
  return out;
}

}  // namespace

std::string view_text(const View& view, const Terminal& terminal) {
  std::string out = header(view, terminal) + map_text(view, terminal);
  if (view.readings) {
    out += first_reading(view, *view.readings, terminal) + reverse_links(*view.readings, terminal);
  } else {
    out += links_text(view, terminal);
  }
  out += neighbours_text(view, terminal);
  return view.change ? out + change_text(*view.change, view.names, terminal) : out;
}

std::string head_text(const View& view, HeadId id, const Terminal& terminal) {
  Grid grid{.corner = "from \\ to", .rows = {}, .columns = {}, .values = {}, .top = 1.0};
  const bool hidden = view.shown.size() < view.units.size();
  for (Index from : view.shown) {
    grid.rows.push_back(name(view, from));
    grid.columns.push_back(name(view, from));
    grid.values.emplace_back();
    double rest = 1.0;
    for (Index to : view.shown) {
      const auto weight = static_cast<double>(view.table.weight(id, from, to));
      grid.values.back().push_back(weight);
      rest -= weight;
    }
    if (hidden) grid.values.back().push_back(std::max(rest, 0.0));
  }
  if (hidden) grid.columns.emplace_back("(rest)");
  std::string out = header(view, terminal);
  out += title(fmt::format("layer {}, head {}", id.layer, id.head), terminal);
  const std::string rest = hidden ? fmt::format(" (rest): what goes to {}.", special_names(view)) : std::string();
  out += paragraph(
      fmt::format("Each row is one {} attending, each column what it attends to; a row sums to 1.{}", view.pieces ? "piece" : "word", rest),
      terminal);
  out += draw(grid, terminal) + scale(grid, terminal);
  return view.change ? out + change_text(*view.change, view.names, terminal) : out;
}

}  // namespace mha::app
