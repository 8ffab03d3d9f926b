// Where the model is and how it is opened: shared by the commands that need one.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "mha/analysis/intervention.h"
#include "mha/analysis/sentence.h"
#include "mha/model/tokenizer.h"
#include "mha/model/transformer.h"

namespace mha::app {

struct OpenModel {
  std::string folder;
  std::string name;  // the folder's own
  Tokenizer tokenizer;
  Transformer transformer;
};

/// Adds --model to a command.
void add_model_option(CLI::App& command, std::string& folder);

/// Opens `folder`, the default model where it is empty. Throws IoError, saying what to do, where it is not there.
OpenModel open_model(const std::string& folder);

/// Throws Error where the model has no such head, saying so where it was removed.
void require_head(const OpenModel& model, HeadId id);

/// How many heads were removed from the model (pruned_heads of its config.json).
Index removed_heads(const TransformerConfig& config);

/// "6 layers x 12 heads, counted from 0", and how many were removed.
std::string size_text(const TransformerConfig& config);

/// find_word for a word given by an option: an error says which option it was.
Index named_word(const char* option, const std::string& word, const Sentence& sentence, const Tokenizer& tokenizer);

/// $XDG_CACHE_HOME/mha or $HOME/.cache/mha; nothing where neither is set.
std::optional<std::string> cache_folder();

}  // namespace mha::app
