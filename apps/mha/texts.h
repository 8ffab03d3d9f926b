// The texts that a command reads: arguments, the lines of a file, or the plain sentences that come with mha. Shared by the commands that
// sum up many texts.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace mha::app {

struct TextOptions {
  std::vector<std::string> texts;
  std::optional<std::string> file;
};

/// Adds TEXT, --text and --file.
void add_texts(CLI::App& command, TextOptions& options);

/// Throws Error where both are given, IoError where the file cannot be read.
std::vector<std::string> texts_of(const TextOptions& options);
/// What text `i` is called in an error: "texts.txt, line 3", "text 3".
std::string place_of(const TextOptions& options, std::size_t i);
/// For an error about all of them: the file's name, or "TEXT".
std::string name_of(const TextOptions& options);

}  // namespace mha::app
