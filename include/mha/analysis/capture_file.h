// Captures in files (docs/formats.md): q, k and lse of every head, or ready weights, of a model of any framework. What such a file holds is
// checked as a whole before anything is handed out; views go straight into the mapped file.
//
//   mha::CaptureFile file = mha::load_capture("telescope.safetensors");
//   mha::captured_weights(file.capture.layers[5], {.head = 11, .queries = {0, n}, .keys = {0, n}}, weights, workspace);
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mha/analysis/capture.h"
#include "mha/analysis/sentence.h"

namespace mha {

/// The tokens of a batch. Absent views and empty lists: the file does not say.
struct CapturedTokens {
  ConstTensorView ids = {};                           // i64 [batch, length]
  ConstTensorView mask = {};                          // bool [batch, length], False = padding
  ConstTensorView offsets = {};                       // i64 [batch, length, 2], in code points of the text
  ConstTensorView words = {};                         // i64 [batch, length], -1: of no word
  std::vector<std::vector<std::string>> pieces = {};  // per batch entry, the vocabulary's own strings
};

/// Which tokens a layer's queries and keys are: names in CaptureFile::tokens, empty where it is not known.
struct CapturedSides {
  std::string queries = {}, keys = {};
};

struct CaptureFile {
  std::string path, model, architecture;         // the latter two as the file says, perhaps empty
  std::vector<std::string> texts;                // of the batch; empty where there was no text
  std::map<std::string, CapturedTokens> tokens;  // "tokens", "decoder_tokens"
  Capture capture;                               // heads of [batch, ...]
  std::vector<CapturedSides> sides;              // one per layer
};

/// Reads and checks a file. Throws IoError where it cannot be read, FormatError, naming the file and the tensor or field, for anything that
/// is not as docs/formats.md says: a missing tensor, another dtype or shape, a number out of range, tables that do not fit, an lse of NaN.
CaptureFile load_capture(const std::string& path);

/// What rows or columns are called.
struct CapturedUnits {
  std::vector<Unit> pieces;
  std::vector<Unit> words;
};

/// The tokens of one batch entry that are no padding: from the first one to the last. All of [0, length) where the side is not known.
Interval captured_tokens(const CaptureFile& file, const std::string& side, Index entry, Index length);
/// Positions [part.lo, part.hi) of one batch entry as units, counted from part.lo: pieces by their place in the text where offsets and text
/// are there, else by the vocabulary's string, else by number; words as the tokenizer numbered them, else each piece by itself.
CapturedUnits captured_units(const CaptureFile& file, const std::string& side, Index entry, Interval part);

}  // namespace mha
