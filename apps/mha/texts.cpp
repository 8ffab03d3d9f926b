// A line is a text; nothing is left out here, so that places in errors are those of the file.
#include "texts.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "mha/analysis/usual.h"
#include "mha/error.h"

namespace mha::app {
namespace {

std::vector<std::string> lines_of(std::istream& in, const std::string& name) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  if (in.bad()) throw IoError(fmt::format("{}: cannot be read", name));
  return lines;
}

std::vector<std::string> read_lines(const std::string& file) {
  if (file == "-") return lines_of(std::cin, "standard input");
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) throw IoError(fmt::format("{}: is a folder, a text file is wanted", file));
  std::ifstream in(file, std::ios::binary);
  if (!in) throw IoError(fmt::format("{}: cannot be read", file));
  return lines_of(in, file);
}

}  // namespace

void add_texts(CLI::App& command, TextOptions& options) {
  command.add_option("TEXT,--text", options.texts, "Texts, each as one argument")->type_name("");
  command.add_option("--file", options.file, "Text file, a line is a text; - is standard input")->type_name("FILE");
}

std::vector<std::string> texts_of(const TextOptions& options) {
  if (options.file && !options.texts.empty()) throw Error("TEXT and --file exclude each other");
  if (options.file) return read_lines(*options.file);
  if (!options.texts.empty()) return options.texts;
  return {plain_sentences().begin(), plain_sentences().end()};
}

std::string place_of(const TextOptions& options, std::size_t i) {
  return fmt::format("{} {}", options.file ? *options.file + ", line" : "text", i + 1);
}

std::string name_of(const TextOptions& options) { return options.file.value_or("TEXT"); }

}  // namespace mha::app
