// mha claims: what is said of multi-head attention, each statement measured here and now and found true or false.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "claims.h"
#include "command.h"
#include "json_numbers.h"
#include "mha/error.h"
#include "terminal.h"

namespace mha::app {
namespace {

struct Options {
  std::string model;
  bool json = false;
};

constexpr const char* kFooter = R"(The statements are those of docs/learn.md. Claims about the mechanism are asked of
the layer with constructed or random weights, claims about trained heads of the
model. Times are of this machine in these moments.

Exit code 1 where a claim is false.

Examples:
  mha claims
  mha claims --json)";

struct Answers {
  std::vector<Claim> claims;
  std::string left_out;  // why nothing was asked of a model; empty where it was
};

Answers ask(const Options& options) {
  Answers answers{.claims = layer_claims(), .left_out = {}};
  std::vector<Claim> of_model;
  try {
    of_model = model_claims(open_model(options.model));
  } catch (const IoError& error) {
    if (!options.model.empty()) throw;  // a model that was asked for must be there
    answers.left_out = error.what();
  }
  std::move(of_model.begin(), of_model.end(), std::back_inserter(answers.claims));
  return answers;
}

std::string answers_text(const Answers& answers, const Terminal& terminal) {
  std::string out;
  int number = 0;
  for (const Claim& claim : answers.claims) {
    out +=
        bold(fmt::format("{:>2}. {}  {}", ++number, claim.holds ? "true " : "FALSE", wrap(claim.statement, terminal.width, 11)), terminal) +
        "\n";
    for (const std::string& figure : claim.figures) {
      // A table's lines keep their columns, sentences are wrapped.
      const bool table = figure.find("   ") != std::string::npos;
      out += fmt::format("           {}\n", table ? printable(figure) : wrap(printable(figure), terminal.width, 11));
    }
  }
  if (!answers.left_out.empty()) out += fmt::format("\nNothing was asked of a trained model: {}\n", one_line(answers.left_out));
  const auto held = std::count_if(answers.claims.begin(), answers.claims.end(), [](const Claim& claim) { return claim.holds; });
  return out + fmt::format("\n{} of {} claims are true\n", held, answers.claims.size());
}

std::string answers_json(const Answers& answers) {
  Json json = Json::array();
  for (const Claim& claim : answers.claims) {
    json.push_back({{"claim", claim.statement}, {"holds", claim.holds}, {"figures", claim.figures}});
  }
  return json.dump(2) + "\n";
}

}  // namespace

void add_claims(CLI::App& app, Output& output) {
  CLI::App* command = app.add_subcommand("claims", "What is claimed of multi-head attention, each statement measured: true or false");
  auto options = std::make_shared<Options>();
  command->footer(kFooter);
  add_model_option(*command, options->model);
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &output] {
    const Answers answers = ask(*options);
    output.text = options->json ? answers_json(answers) : answers_text(answers, this_terminal());
    output.code = std::all_of(answers.claims.begin(), answers.claims.end(), [](const Claim& claim) { return claim.holds; }) ? 0 : 1;
  });
}

}  // namespace mha::app
