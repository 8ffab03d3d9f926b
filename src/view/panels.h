// What all pictures of heads share: checks, names of heads and units, the sentences that say what is not drawn.
// Called by arcs_svg.cpp, matrix_svg.cpp, atlas_svg.cpp, png.cpp and weights_file.cpp. Draws nothing.
#pragma once

#include <string>
#include <vector>

#include "mha/view/picture.h"

namespace mha::view {

/// Throws ShapeError where a head's weights or marks do not fit the units.
void check(const Picture& picture);

inline float weight_at(const PictureHead& head, Index query, Index key) {
  return head.weights.as<float>()[query * head.weights.size(1) + key];
}

/// Positions that are drawn: without special units unless they are asked for.
std::vector<Index> shown_units(const std::vector<Unit>& units, bool special);

/// "layer 5, head 11".
std::string head_name(HeadId id);
/// Its title and, where it has one, its numbers in second place.
std::string heading(const PictureHead& head);

/// Where the attention of one row goes; the parts add up to what the row weighs.
struct Shares {
  double drawn = 0, special = 0, own = 0, weaker = 0;
};
/// Of arcs: `least` and `itself` say what is drawn of the units shown.
Shares shares_of(const Picture& picture, const PictureHead& head, Index query, bool arcs);
/// Sentences on it: of each marked word, or on average. Empty where all is drawn.
std::string told_shares(const Picture& picture, const PictureHead& head, bool arcs);
/// "man -> telescope 0.388", for every mark.
std::string told_marks(const Picture& picture, const PictureHead& head);

/// Title and description for those who do not see the picture.
std::string title_of(const Picture& picture);
std::string description_of(const Picture& picture, const std::string& kind);
/// "all-MiniLM-L6-v2, exact weights by word, without head 5.11." The foot of a picture begins with it.
std::string source_of(const Picture& picture);

}  // namespace mha::view
