// The default model's folder is where ./run unpacks it.
#include "model_folder.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "mha/error.h"

namespace mha::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultModel = "all-MiniLM-L6-v2";
constexpr const char* kRemedy = "run ./run once, or give a Hugging Face folder with --model DIR";

std::string default_folder() {
  const std::optional<std::string> cache = cache_folder();
  if (!cache) throw IoError(fmt::format("no model: neither XDG_CACHE_HOME nor HOME is set; give one with --model DIR"));
  const std::string folder = *cache + "/models/" + kDefaultModel;
  std::error_code error;
  if (!fs::exists(folder, error)) throw IoError(fmt::format("no model in {}: {}", folder, kRemedy));
  return folder;
}

std::string last_name(const std::string& folder) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(fs::path(folder), error);
  const fs::path path = error ? fs::path(folder) : whole;
  return path.has_filename() ? path.filename().string() : path.string();
}

}  // namespace

void add_model_option(CLI::App& command, std::string& folder) {
  command.add_option("--model", folder, "Hugging Face folder of the BERT family: config.json, tokenizer.json, model.safetensors")
      ->type_name("DIR");
}

void require_head(const OpenModel& model, HeadId id) {
  if (model.transformer.config().has_head(id.layer, id.head)) return;
  throw Error(fmt::format("layer {} head {} was removed from {} (pruned_heads of its config.json)", id.layer, id.head, model.name));
}

Index removed_heads(const TransformerConfig& config) {
  std::size_t removed = 0;
  for (const auto& [layer, heads] : config.pruned_heads) removed += heads.size();
  return static_cast<Index>(removed);
}

std::string size_text(const TransformerConfig& config) {
  const Index removed = removed_heads(config);
  const std::string gone = removed == 0 ? "" : fmt::format("; {} of the {} were removed", removed, config.layers * config.heads);
  return fmt::format("{} layers x {} heads, counted from 0{}", config.layers, config.heads, gone);
}

Index named_word(const char* option, const std::string& word, const Sentence& sentence, const Tokenizer& tokenizer) {
  try {
    return find_word(sentence, tokenizer, word);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", option, error.what()));
  }
}

std::optional<std::string> cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return std::string(cache) + "/mha";  // a relative one is to be ignored (XDG base directories)
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return std::string(home) + "/.cache/mha";
  return std::nullopt;
}

OpenModel open_model(const std::string& folder) {
  const std::string used = folder.empty() ? default_folder() : folder;
  std::error_code error;
  if (!fs::is_directory(used, error)) throw IoError(fmt::format("no model in {}: there is no such folder", used));
  return {.folder = used,
          .name = last_name(used),
          .tokenizer = Tokenizer::load(used + "/tokenizer.json"),
          .transformer = Transformer::load(used)};
}

}  // namespace mha::app
