// One JSON file per model: usual-<hash>.json. The hash says what the numbers were computed from; "check" says that they are whole.
#include "usual_cache.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "mha/error.h"
#include "output_file.h"

namespace mha::app {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormat = 1;  // raise when the computation or the file changes

/// 64-bit hash in the manner of FNV-1a, eight bytes a step with a shift that lets high bits reach low ones. Against accidents, not
/// attackers.
class Hash {
 public:
  void add(std::string_view bytes) {
    add_word(bytes.size());
    for (; bytes.size() >= sizeof(std::uint64_t); bytes.remove_prefix(sizeof(std::uint64_t))) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data(), sizeof(word));
      add_word(word);
    }
    std::uint64_t rest = 0;
    std::memcpy(&rest, bytes.data(), bytes.size());
    add_word(rest);
  }
  std::string text() const { return fmt::format("{:016x}", state_); }

 private:
  void add_word(std::uint64_t word) {
    state_ = (state_ ^ word) * 0x100000001b3ULL;
    state_ ^= state_ >> 29;
  }
  std::uint64_t state_ = 0xcbf29ce484222325ULL;
};

void add_file(Hash& hash, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw IoError(fmt::format("{}: cannot be read", path));
  std::vector<char> block(std::size_t{1} << 20);
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())) || file.gcount() > 0) {
    hash.add({block.data(), static_cast<std::size_t>(file.gcount())});
  }
  if (file.bad()) throw IoError(fmt::format("{}: cannot be read", path));
}

std::string cache_key(const OpenModel& model) {
  Hash hash;
  hash.add(fmt::format("usual {} {}", kFormat, UsualWeights::kReach));
  for (const std::string& sentence : plain_sentences()) hash.add(sentence);
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"}) add_file(hash, model.folder + "/" + name);
  return hash.text();
}

std::string check_of(const json& usual) {
  Hash hash;
  hash.add(usual.dump());
  return hash.text();
}

std::optional<UsualWeights> read_cache(const std::string& path, const OpenModel& model) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  const TransformerConfig& config = model.transformer.config();
  UsualWeights usual(config.layers, config.heads);
  try {
    const json whole = json::parse(file);
    const json& part = whole.at("usual");
    if (whole.at("format").get<int>() != kFormat || whole.at("check").get<std::string>() != check_of(part)) return std::nullopt;
    const auto pairs = part.at("pairs").get<std::vector<Index>>();
    const auto sums = part.at("sums").get<std::vector<double>>();
    if (pairs.size() != usual.pairs.size() || sums.size() != usual.sums.size()) return std::nullopt;
    usual.pairs = pairs;
    usual.sums = sums;
  } catch (const json::exception&) {
    return std::nullopt;
  }
  return usual;
}

/// A cache that cannot be written is none.
void write_cache(const fs::path& path, const UsualWeights& usual) {
  const json part = {{"pairs", usual.pairs}, {"sums", usual.sums}};
  const json whole = {{"format", kFormat}, {"check", check_of(part)}, {"usual", part}};
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  try {
    write_file(path.string(), whole.dump() + '\n');
  } catch (const IoError&) {  // the numbers are there all the same
  }
}

}  // namespace

UsualWeights cached_usual_weights(const OpenModel& model, const Executor& executor) {
  const std::optional<std::string> folder = cache_folder();
  const std::string path = folder ? fmt::format("{}/usual-{}.json", *folder, cache_key(model)) : std::string();
  if (folder) {
    if (std::optional<UsualWeights> usual = read_cache(path, model)) return *std::move(usual);
  }
  Workspace workspace(executor);
  UsualWeights usual = usual_weights(model.transformer, model.tokenizer, plain_sentences(), workspace);
  const bool stopped = executor.stop != nullptr && executor.stop(executor.context);
  if (folder && !stopped) write_cache(path, usual);
  return usual;
}

}  // namespace mha::app
