// One change of the model while it reads (`mha view --temperature`, `--mask-word`, `--zero-head`) and what moves with it.
#pragma once

#include <string>
#include <vector>

#include "command.h"
#include "json_numbers.h"
#include "mha/analysis/head_table.h"
#include "model_folder.h"
#include "terminal.h"

namespace mha::app {

/// What the user asks for; empty: no change.
struct ChangeOptions {
  std::string temperature;
  std::string mask_word;
  std::vector<std::string> zero_heads;
  bool any() const { return !temperature.empty() || !mask_word.empty() || !zero_heads.empty(); }
};

void add_change_options(CLI::App& command, ChangeOptions& options);
/// The change in words: "heads 5.4, 5.11 give 0".
std::string what_of(const ChangeOptions& options);
/// "5.11" is layer 5, head 11. Throws Error, naming the option, for anything else.
HeadId head_in(const std::string& option, const std::string& text);

/// The intervention asked for. Throws Error where two kinds are asked for at once, or one cannot be.
Intervention intervention_of(const ChangeOptions& options, const OpenModel& model, const Sentence& sentence);

struct MovedLink {
  HeadId id;
  Index from = 0;
  Index to = 0;
  float before = 0.0F;
  float after = 0.0F;
};
struct MovedEntropy {
  HeadId id;
  double before = 0.0;
  double after = 0.0;
};

/// Before and after, over the units shown.
struct Change {
  std::string what;
  double cosine = 1.0;          // of the sentence's vectors
  double entropy_before = 0.0;  // nats, mean over all heads and units
  double entropy_after = 0.0;
  Index rows = 0;                       // units times heads
  Index rows_moved = 0;                 // whose strongest other unit is another one
  std::vector<MovedLink> links;         // largest changes first
  std::vector<MovedEntropy> entropies;  // likewise, by head
};

struct ChangeInputs {
  const HeadTable& before;
  const HeadTable& after;
  std::span<const Unit> units;
  std::span<const Index> shown;
  const Intervention& intervention;
};
/// Links to a word that nobody may attend to are not listed: that they go is the change itself.
Change compare_runs(const ChangeInputs& inputs, const ChangeOptions& options, double cosine);

std::string change_text(const Change& change, const std::vector<std::string>& names, const Terminal& terminal);
Json change_json(const Change& change, const std::vector<std::string>& names);

}  // namespace mha::app
