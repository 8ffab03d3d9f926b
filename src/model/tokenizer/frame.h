// The frame of special tokens around a text ([CLS] text [SEP]): TemplateProcessing and BertProcessing. Called by tokenizer.cpp.
#pragma once

#include <string>
#include <vector>

#include "model/json_fields.h"

namespace mha::model {

struct FrameToken {
  Index id = 0;
  std::string token;
  Index token_type = 0;
};

struct Frame {
  std::vector<FrameToken> before;
  std::vector<FrameToken> after;
  Index text_type = 0;
};

/// From the field "post_processor" of tokenizer.json; absent: no frame. Throws FormatError for other types and for a template that does not
/// hold the text exactly once.
Frame read_frame(const JsonFields& file);

}  // namespace mha::model
