// Checks and sentences of pictures. Every number told is computed from the weights drawn.
#include "view/panels.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "mha/error.h"
#include "view/svg.h"

namespace mha::view {
namespace {

constexpr const char* kArrow = " \xE2\x86\x92 ";  // U+2192

const Unit& unit(const std::vector<Unit>& units, Index position) { return units[static_cast<std::size_t>(position)]; }

/// The rows that marks speak of, each once, in their order.
std::vector<Index> marked_rows(const PictureHead& head) {
  std::vector<Index> rows;
  for (const PictureLink& mark : head.marks) {
    if (std::find(rows.begin(), rows.end(), mark.from) == rows.end()) rows.push_back(mark.from);
  }
  return rows;
}

std::string specials_of(const Picture& picture) {
  std::string names;
  std::size_t count = 0;
  for (const Unit& key : picture.columns()) {
    if (!key.special || ++count > 3) continue;
    names += (names.empty() ? "" : ", ") + key.text;
  }
  return count > 3 ? "special tokens" : names;
}

/// What is not drawn, and how much it is: "0.31 [CLS], [SEP], 0.05 itself".
std::string rest_of(const Picture& picture, const Shares& shares, bool arcs) {
  std::vector<std::string> parts;
  if (!picture.special && !specials_of(picture).empty()) parts.push_back(fixed(shares.special, 2) + ' ' + specials_of(picture));
  if (arcs) parts.push_back(fixed(shares.own, 2) + " itself");
  if (arcs) parts.push_back(fixed(shares.weaker, 2) + " weaker links");
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "" : ", ") + parts[i];
  return text;
}

std::string unit_name(const Picture& picture) { return picture.pieces ? "piece" : "word"; }

}  // namespace

void check(const Picture& picture) {
  const auto rows = static_cast<Index>(picture.queries.size());
  const auto columns = static_cast<Index>(picture.columns().size());
  for (const PictureHead& head : picture.heads) {
    const ConstTensorView& weights = head.weights;
    MHA_CHECK(ShapeError, weights.rank() == 2 && weights.size(0) == rows && weights.size(1) == columns, "picture: weights of ",
              head_name(head.id), " have shape ", to_string(weights.shape), ", there are ", rows, " rows and ", columns, " columns");
    MHA_CHECK(ShapeError, weights.dtype == DType::F32 && weights.is_contiguous(), "picture: weights of ", head_name(head.id),
              " must be dense f32");
    for (const PictureLink& mark : head.marks) {
      MHA_CHECK(ShapeError, mark.from >= 0 && mark.from < rows && mark.to >= 0 && mark.to < columns, "picture: a mark from ", mark.from,
                " to ", mark.to, ", there are ", rows, " rows and ", columns, " columns");
    }
  }
}

std::vector<Index> shown_units(const std::vector<Unit>& units, bool special) {
  std::vector<Index> shown;
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (special || !units[i].special) shown.push_back(static_cast<Index>(i));
  }
  return shown;
}

std::string head_name(HeadId id) { return core::join("layer ", id.layer, ", head ", id.head); }

std::string heading(const PictureHead& head) { return head.title.empty() ? head_name(head.id) : head.title; }

Shares shares_of(const Picture& picture, const PictureHead& head, Index query, bool arcs) {
  Shares shares;
  for (Index key = 0; key < static_cast<Index>(picture.columns().size()); ++key) {
    const float weight = weight_at(head, query, key);
    if (std::isnan(weight)) continue;
    const bool left_out = !picture.special && unit(picture.columns(), key).special;
    double& part = left_out                                       ? shares.special
                   : arcs && picture.keys.empty() && key == query ? shares.own
                   : arcs && weight < picture.least               ? shares.weaker
                                                                  : shares.drawn;
    part += static_cast<double>(weight);
  }
  return shares;
}

std::string told_shares(const Picture& picture, const PictureHead& head, bool arcs) {
  std::vector<Index> rows = marked_rows(head);
  const bool each = !rows.empty();
  if (!each) rows = shown_units(picture.queries, picture.special);
  std::string text;
  Shares mean;
  for (Index row : rows) {
    const Shares shares = shares_of(picture, head, row, arcs);
    const std::string rest = rest_of(picture, shares, arcs);
    if (each && !rest.empty()) {
      text += (text.empty() ? "" : " ") + ("\xE2\x80\x9C" + unit(picture.queries, row).text) + "\xE2\x80\x9D: " + fixed(shares.drawn, 2) +
              " of its attention is drawn; the rest: " + rest + '.';
    }
    const auto count = static_cast<double>(rows.size());
    mean.drawn += shares.drawn / count;
    mean.special += shares.special / count;
    mean.own += shares.own / count;
    mean.weaker += shares.weaker / count;
  }
  const std::string rest = rest_of(picture, mean, arcs);
  if (each || rows.empty() || rest.empty()) return text;
  return "On average " + fixed(mean.drawn, 2) + " of a " + unit_name(picture) + "\xE2\x80\x99s attention is drawn; the rest: " + rest + '.';
}

std::string told_marks(const Picture& picture, const PictureHead& head) {
  std::string text;
  for (const PictureLink& mark : head.marks) {
    const float weight = weight_at(head, mark.from, mark.to);
    text += (text.empty() ? "" : ", ") + unit(picture.queries, mark.from).text + kArrow + unit(picture.columns(), mark.to).text + ' ' +
            (std::isnan(weight) ? "hidden" : fixed(static_cast<double>(weight), 3));
  }
  return text;
}

std::string title_of(const Picture& picture) {
  std::string text = "Attention";
  for (std::size_t i = 0; i < picture.heads.size() && picture.heads.size() <= 4; ++i) {
    text += (i == 0 ? " of " : " and ") + head_name(picture.heads[i].id);
  }
  if (picture.heads.size() > 4) text += core::join(" of ", picture.heads.size(), " heads");
  if (picture.text.empty()) return text;
  return text + " on \xE2\x80\x9C" + fitted(picture.text, 120) + "\xE2\x80\x9D";
}

std::string description_of(const Picture& picture, const std::string& kind) {
  std::string text = kind + ' ' + source_of(picture);
  for (const PictureHead& head : picture.heads) {
    if (head.marks.empty()) continue;
    text += ' ' + head_name(head.id) + (head.title.empty() ? "" : " (" + head.title + ")") + ": " + told_marks(picture, head) + '.';
  }
  return text;
}

std::string source_of(const Picture& picture) {
  std::string text = picture.model + (picture.model.empty() ? "Exact" : ", exact") + " weights by " + unit_name(picture);
  if (!picture.change.empty()) text += "; " + picture.change;
  return text + ". Layers and heads count from 0.";
}

}  // namespace mha::view
