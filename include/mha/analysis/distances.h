// How far heads are apart in where they attend, and a picture of it (Clark et al. 2019, arXiv 1906.04341, section 5): Jensen-Shannon
// divergence of the two heads' rows, summed over all rows; weights smoothed first, as the paper's released code has it (head_distances.py),
// 0.999 alpha + 0.001 / n, so that a weight of 0 is no wall. Nats; two equal heads are at 0, no two at more than ln 2 per row.
//
//   mha::HeadMatrix distances = mha::head_distances({&capture, 1}, workspace);
//   mha::PlaneMap map = mha::plane_map(distances);
#pragma once

#include <array>
#include <span>
#include <vector>

#include "mha/analysis/capture.h"

namespace mha {

/// A number for each pair of heads.
struct HeadMatrix {
  std::vector<HeadId> heads;   // layer by layer; those that were removed from the model are left out
  std::vector<double> values;  // [heads, heads], symmetric
  Index rows = 0;              // of weights or outputs behind it

  Index size() const { return static_cast<Index>(heads.size()); }
  /// By place in `heads`. Throws ShapeError outside.
  double at(Index a, Index b) const;
};

/// Distances between all heads over the rows of all texts, special tokens' own included; the first batch entry of each. Rows are computed a
/// block at a time, for all heads at once: memory O(heads * n), time O(heads^2 n^2). Bitwise the same for any number of threads. Throws
/// ShapeError without a text, where texts have different heads, or a layer is not self-attention of the text's one length.
HeadMatrix head_distances(std::span<const Capture> texts, Workspace& workspace);

/// Heads as points in a plane.
struct PlaneMap {
  std::vector<std::array<double, 2>> points;  // in the order of the matrix; their mean is 0
  double shown = 0;  // the share of the variance that two dimensions show: 1 says that distances in the plane are the given ones
};

/// Classical multidimensional scaling (Torgerson 1952): the two largest eigenvectors of -J D^2 J / 2, D^2 the squared distances, J
/// centring, times the roots of their eigenvalues. (The paper's notebook fits distances by iteration, from random starts; this has one
/// answer.) The sign of an axis makes its first outermost head positive. Throws Error for a distance that is not finite.
PlaneMap plane_map(const HeadMatrix& distances);

}  // namespace mha
