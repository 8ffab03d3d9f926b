// Pictures of heads of any origin: out of a file of captured tensors (docs/formats.md). Called by `mha export --tensors`.
//
//   mha::CaptureFile file = mha::load_capture("telescope.safetensors");
//   std::string svg = mha::matrix_svg(mha::captured_picture(file, {.heads = {{.layer = 5, .head = 11}}}));
#pragma once

#include <string>
#include <vector>

#include "mha/analysis/capture_file.h"
#include "mha/view/picture.h"

namespace mha {

/// What to draw. Layers are counted within the run, which is what the page calls its runs: one per entry of the batch and kind of table.
struct CapturedWish {
  std::string run = "t0";
  std::vector<HeadId> heads = {};  // empty: all
  bool pieces = false;
};

/// Weights computed from q, k and lse; hidden ones are NaN. The picture keeps them. Throws Error for a run or a head that is not there,
/// saying which are, and where all tables together have more than 2^26 cells.
Picture captured_picture(const CaptureFile& file, const CapturedWish& wish);

/// One head's whole table by pieces, f32, at most `size` cells a side: the largest weight of each cell; NaN where all of it is hidden. Any
/// length. Throws as captured_picture.
Tensor captured_map(const CaptureFile& file, const std::string& run, HeadId head, Index size);

}  // namespace mha
