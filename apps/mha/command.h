// What a sub-command of `mha` is: a function that adds itself to the command line and, once chosen, leaves its whole output in an Output.
// main.cpp prints it at the end, so that a command that fails has printed nothing. Errors are thrown (mha::Error), never printed here.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "mha/workspace.h"

namespace mha::app {

/// What a command answers. Exit code 1 says that what it checked does not hold.
struct Output {
  std::string text = {};
  int code = 0;
  std::vector<std::string> complaints = {};              // for standard error, a line each
  void (*print_now)(const std::string& text) = nullptr;  // for a command that stays: prints at once; set by main.cpp
};

/// Empty where `text` is a whole number of 64 bits, what is wrong with it otherwise.
std::string is_whole_number(const std::string& text);

inline constexpr const char* kTelescope = "The man saw the astronomer with a telescope.";

/// Adds an option that takes a whole number of 64 bits; anything else, too large ones included, is refused when parsed.
template <class Number>
CLI::Option* add_number(CLI::App& command, const std::string& name, Number& value, const std::string& description) {
  return command.add_option(name, value, description)->check(CLI::Validator(is_whole_number, ""))->type_name("N");
}

/// Adds the text, as an argument or as --text; `text` holds the default.
void add_text(CLI::App& command, std::string& text);

/// The executor for --threads. Throws Error where there are not so many cores.
Executor executor_of(Index threads);

void add_view(CLI::App& app, Output& output);
void add_find(CLI::App& app, Output& output);
void add_serve(CLI::App& app, Output& output);
void add_heads(CLI::App& app, Output& output);
void add_score(CLI::App& app, Output& output);
void add_shapes(CLI::App& app, Output& output);
void add_explain(CLI::App& app, Output& output);
void add_claims(CLI::App& app, Output& output);
void add_verify(CLI::App& app, Output& output);
void add_bench(CLI::App& app, Output& output);
void add_watch(CLI::App& app, Output& output);
void add_export(CLI::App& app, Output& output);
void add_prune(CLI::App& app, Output& output);
void add_compare(CLI::App& app, Output& output);

}  // namespace mha::app
