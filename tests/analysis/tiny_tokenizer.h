// A tokenizer of twenty tokens that lowercases, for tests that need words cut into pieces but no model.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "mha/model/tokenizer.h"
#include "model/encoder_case.h"

namespace mha::test {

inline std::string tiny_tokenizer_json() {
  using nlohmann::json;
  json vocabulary = json::object();
  for (const char* token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",  "the", "man", "saw", "astronom", "##er",
                            "##s",   "a",     "with",  "tele",  "##scope", ".",   "#",   "caf", "##e",      "2"}) {
    vocabulary[token] = vocabulary.size();
  }
  const json cls = {{"SpecialToken", {{"id", "[CLS]"}, {"type_id", 0}}}};
  const json sep = {{"SpecialToken", {{"id", "[SEP]"}, {"type_id", 0}}}};
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const json specials = {{"[CLS]", {{"id", "[CLS]"}, {"ids", {2}}, {"tokens", {"[CLS]"}}}},
                         {"[SEP]", {{"id", "[SEP]"}, {"ids", {3}}, {"tokens", {"[SEP]"}}}}};
  const json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", json::array()},
      {"normalizer",
       {{"type", "BertNormalizer"}, {"clean_text", true}, {"handle_chinese_chars", true}, {"strip_accents", nullptr}, {"lowercase", true}}},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"post_processor", {{"type", "TemplateProcessing"}, {"single", {cls, text, sep}}, {"special_tokens", specials}}},
      {"model",
       {{"type", "WordPiece"},
        {"unk_token", "[UNK]"},
        {"continuing_subword_prefix", "##"},
        {"max_input_chars_per_word", 100},
        {"vocab", vocabulary}}}};
  return file.dump();
}

inline Tokenizer tiny_tokenizer() {
  const TempFolder folder;
  write_text(folder.file("tokenizer.json"), tiny_tokenizer_json());
  return Tokenizer::load(folder.file("tokenizer.json"));
}

}  // namespace mha::test
