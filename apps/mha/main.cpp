// The command `mha`: chooses the sub-command, prints its output or one line of error. Exit code 0: done; 2: bad input; 1: failure, or
// what a command checked does not hold.
// What a sub-command does stands in its own cmd_x.cpp.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <array>
#include <charconv>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "command.h"
#include "mha/error.h"
#include "mha/tensor.h"
#include "mha/version.h"
#include "terminal.h"

namespace {

constexpr int kFailure = 1;
constexpr int kBadInput = 2;

// In the order of --help.
constexpr std::array kCommands = {
    mha::app::add_view,   mha::app::add_find,   mha::app::add_compare, mha::app::add_heads,  mha::app::add_score,
    mha::app::add_prune,  mha::app::add_watch,  mha::app::add_serve,   mha::app::add_export, mha::app::add_explain,
    mha::app::add_claims, mha::app::add_shapes, mha::app::add_verify,  mha::app::add_bench,
};

constexpr const char* kFooter = R"(Examples:
  mha view                                  all heads on the telescope sentence
  mha view "The bank raised its rates."     ... on another text
  mha view --layer 5 --head 4               one head's whole table
  mha find --from telescope --to man        heads ranked by one link
  mha heads --sort induction                what each head does, over many texts
  mha view --zero-head 5.11                 ... and what moves without that head
  mha compare "He ate fish." "He ate rice." which heads make the difference
  mha prune                                 which heads can go, and how many
  mha explain "money bank"                  the layer in numbers, step by step
  mha claims                                what is said of attention, measured
  mha shapes --d-model 512 --heads 8 --tokens 2
  mha verify                                fast paths against the reference
  mha bench                                 how fast, beside what is possible here
  mha serve --open                          all of it as a page in the browser
  mha watch --file texts.txt                the health of every head over texts
  mha score --conllu FILE --dev FILE        heads beside a treebank's relations
  mha export --heads 5.11,5.4 --out heads.svg   pictures and tables to keep

`mha COMMAND --help` says more. Layers and heads count from 0.)";

int fail(int code, const std::string& message) {
  fmt::print(stderr, "mha: {}\n", mha::app::one_line(message));
  return code;
}

/// What the parser says, in words that tell what to do.
std::string parse_message(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError) && app.get_subcommands().empty()) {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) names.push_back(command->get_name());
    const std::string list = fmt::format("{}", fmt::join(names, ", "));
    if (argc < 2) return fmt::format("no command given, there are {} (mha --help)", list);
    return fmt::format("no command \"{}\", there are {} (mha --help)", argv[1], list);
  }
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) && !app.get_subcommands().empty()) {
    return fmt::format("{} (a TEXT of several words needs quotes; mha {} --help)", error.what(), app.get_subcommands().front()->get_name());
  }
  return error.what();
}

int print_out(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return written ? 0 : fail(kFailure, "cannot write to standard output");
}

}  // namespace

std::string mha::app::is_whole_number(const std::string& text) {
  mha::Index value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) return fmt::format("{} is too large a number", text);
  return error == std::errc() && end == text.data() + text.size() ? std::string() : fmt::format("\"{}\" is not a whole number", text);
}

void mha::app::add_text(CLI::App& command, std::string& text) {
  command.add_option("TEXT,--text", text, fmt::format("The text, as one argument (default: {})", text))->type_name("");
}

mha::Executor mha::app::executor_of(Index threads) {
  Executor executor = default_executor();
  if (threads < 1 || threads > executor.concurrency) {
    throw Error(fmt::format("--threads is {}, must be 1 to {}, the cores this process may use", threads, executor.concurrency));
  }
  if (threads == 1) return serial_executor();
  executor.concurrency = static_cast<int>(threads);
  return executor;
}

int main(int argc, char** argv) {
  mha::app::use_utf8();
  CLI::App app("A microscope for the heads of multi-head attention.", "mha");
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("mha ") + mha::kVersion);
  app.require_subcommand(1);
  mha::app::Output output;
  output.print_now = [](const std::string& text) {
    if (print_out(text) != 0) throw std::runtime_error("nobody reads the output");
  };
  try {
    for (const auto add : kCommands) add(app, output);
    app.parse(argc, argv);
    const int printed = print_out(output.text);
    for (const std::string& complaint : output.complaints) fail(output.code, complaint);
    return printed != 0 ? printed : output.code;
  } catch (const CLI::CallForVersion& version) {
    return print_out(fmt::format("{}\n", version.what()));
  } catch (const CLI::CallForHelp&) {
    return print_out(app.help());
  } catch (const CLI::ParseError& error) {
    return fail(kBadInput, parse_message(app, error, argc, argv));
  } catch (const mha::Error& error) {
    return fail(kBadInput, error.what());
  } catch (const std::bad_alloc&) {
    return fail(kFailure, "out of memory");
  } catch (const std::exception& error) {
    return fail(kFailure, error.what());
  }
}
