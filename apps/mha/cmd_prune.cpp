// mha prune: in which order heads can go, how far, and a checkpoint without them. The formats are in prune_report.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include "command.h"
#include "mha/error.h"
#include "mha/model/prune.h"
#include "model_folder.h"
#include "output_file.h"
#include "prune_report.h"
#include "texts.h"

namespace mha::app {
namespace {

struct Options {
  TextOptions texts;
  std::string model;
  std::optional<Index> most;
  Index seeds = 5;
  std::optional<Index> keep;
  std::string out;
  std::string svg;
  std::optional<Index> threads;
  bool json = false;
  bool csv = false;
};

constexpr Index kMostPlainTexts = 200;     // of the plain sentences, unless asked for
constexpr std::size_t kFewestTexts = 6;    // three to order by, three to measure on: similarities have an order from three texts on
constexpr std::size_t kRandomPoints = 12;  // of a curve of chance
constexpr Index kPairs = 31;               // of timed runs
constexpr std::size_t kTimedTexts = 20;

constexpr const char* kFooter = R"(Heads are ordered by what each alone is worth (leave one out): with its output 0
where it enters W_O, how far does the sentence's vector turn (1 - cosine, mean
over texts)? Then they go one after another, the least worth first. Every second
text orders, the others measure:

  cosine      of sentence vectors without and with the heads, mean over texts
  rank corr.  Spearman's, of the similarities of all pairs of texts: whether the
              model still ranks what is like what as it did
  random      the same for heads in an order of chance (--seeds of them): mean,
              least and most, at twelve points along the way

Without TEXT and --file: 200 of the 501 plain sentences that come with mha, spread
evenly (--most 501: all). Each line of a file is a text of its own.

--keep N --out DIR writes a checkpoint with the other heads' rows and columns cut
out of W_q, W_k, W_v and W_O (config.json: pruned_heads), a folder that every
command reads as --model DIR, and says how much smaller and faster it is. An
existing folder is never overwritten.

Examples:
  mha prune
  mha prune --file texts.txt --csv > curve.csv
  mha prune --most 501 --svg curve.svg
  mha prune --keep 48 --out smaller
  mha view --model smaller)";

/// Texts by their ids, every second one for another purpose.
struct Texts {
  std::vector<TextIds> to_order, to_measure;
};

/// `most` of the texts, spread evenly.
std::vector<std::size_t> chosen(std::size_t all, Index most) {
  const std::size_t count = std::min(all, static_cast<std::size_t>(most));
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < count; ++i) places.push_back(i * all / count);
  return places;
}

Texts read_texts(const OpenModel& model, const Options& options, PruneReport& report) {
  const std::vector<std::string> texts = texts_of(options.texts);
  const bool plain = !options.texts.file && options.texts.texts.empty();
  const Index most = options.most.value_or(plain ? kMostPlainTexts : std::numeric_limits<Index>::max());
  report.longest = model.transformer.config().max_positions;
  Texts read;
  for (const std::size_t i : chosen(texts.size(), most)) {
    try {
      const Encoding encoding = model.tokenizer.encode(texts[i], false);
      if (encoding.size() == 0) {
        ++report.skipped;
        continue;
      }
      Sentence sentence = read_sentence(model.tokenizer, texts[i], report.longest);
      report.cut += sentence.left_out > 0 ? 1 : 0;
      (read.to_order.size() > read.to_measure.size() ? read.to_measure : read.to_order).push_back(std::move(sentence.ids));
    } catch (const Error& error) {
      throw Error(fmt::format("{}: {}", place_of(options.texts, i), error.what()));
    }
  }
  const std::size_t count = read.to_order.size() + read.to_measure.size();
  if (count < kFewestTexts) {
    throw Error(fmt::format("{}: {} texts with a word in them, at least {} are needed: half to order by, half to measure on",
                            name_of(options.texts), count, kFewestTexts));
  }
  report.texts_to_order = static_cast<Index>(read.to_order.size());
  report.texts_to_measure = static_cast<Index>(read.to_measure.size());
  return read;
}

/// Effects as heads go, and their order.
std::vector<HeadId> order_heads(const OpenModel& model, const Texts& texts, PruneReport& report, Workspace& workspace) {
  Progress progress(texts.to_order.size());
  const std::vector<HeadEffect> effects = head_effects(model.transformer, texts.to_order, Ablation::Zero, workspace,
                                                       [&] { progress.begin("texts, each head left out in turn"); });
  const std::vector<HeadId> order = removal_order(effects);
  for (const HeadId& id : order) {
    report.order.push_back(*std::find_if(effects.begin(), effects.end(), [&](const HeadEffect& effect) { return effect.id == id; }));
  }
  return order;
}

void widen(Spread& spread, double value, Index count) {
  spread.least = count == 0 ? value : std::min(spread.least, value);
  spread.most = count == 0 ? value : std::max(spread.most, value);
  spread.mean += (value - spread.mean) / static_cast<double>(count + 1);
}

/// The curve by `order`, and those by orders of chance.
void measure_curves(const OpenModel& model, const Texts& texts, const std::vector<HeadId>& order, PruneReport& report,
                    Workspace& workspace) {
  std::vector<std::size_t> all(order.size() + 1);
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::vector<std::size_t> some;
  for (std::size_t i = 1; i <= kRandomPoints; ++i) {
    const std::size_t count = i * order.size() / kRandomPoints;
    if (count > 0 && (some.empty() || some.back() != count)) some.push_back(count);
  }
  Progress progress(texts.to_measure.size() * static_cast<std::size_t>(1 + report.seeds));
  const auto curve = [&](const std::vector<HeadId>& heads, const std::vector<std::size_t>& counts) {
    return pruning_curve(model.transformer, texts.to_measure, heads, counts, workspace, [&] { progress.begin("texts, without heads"); });
  };
  report.curve = curve(order, all);
  for (const std::size_t count : some) report.random.push_back({.removed = count});
  for (Index seed = 0; seed < report.seeds; ++seed) {
    const std::vector<PruningPoint> points = curve(random_order(order, static_cast<std::uint64_t>(seed)), some);
    for (std::size_t i = 0; i < points.size(); ++i) {
      widen(report.random[i].cosine, points[i].cosine, seed);
      widen(report.random[i].correlation, points[i].correlation, seed);
    }
  }
  if (report.seeds == 0) report.random.clear();
}

double seconds_of(const Transformer& model, std::span<const TextIds> texts, Workspace& workspace) {
  const auto begin = std::chrono::steady_clock::now();
  for (const TextIds& ids : texts) {
    Tensor hidden(DType::F32, {1, static_cast<Index>(ids.size()), model.config().d_model});
    model.forward({.ids = ids}, hidden, workspace);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Runs of both models in pairs, the first of a pair in turn.
Spread time_share(const Transformer& whole, const Transformer& pruned, std::span<const TextIds> texts, Workspace& workspace) {
  std::vector<double> shares;
  Progress progress(static_cast<std::size_t>(kPairs));
  for (Index pair = 0; pair < kPairs; ++pair) {
    progress.begin("timed pairs");
    double pruned_first = pair % 2 == 0 ? seconds_of(pruned, texts, workspace) : 0.0;
    const double seconds = seconds_of(whole, texts, workspace);
    if (pair % 2 != 0) pruned_first = seconds_of(pruned, texts, workspace);
    shares.push_back(pruned_first / seconds);
  }
  std::sort(shares.begin(), shares.end());
  return {.mean = shares[shares.size() / 2], .least = shares.front(), .most = shares.back()};
}

/// Largest difference of hidden states between the checkpoint and the whole model with the heads masked.
double largest_difference(const OpenModel& model, const Transformer& pruned, const std::vector<HeadId>& removed,
                          std::span<const TextIds> texts, Workspace& workspace) {
  double largest = 0.0;
  const std::vector<std::vector<HeadId>> sets = {removed};
  for (const TextIds& ids : texts) {
    Tensor hidden(DType::F32, {1, static_cast<Index>(ids.size()), pruned.config().d_model});
    pruned.forward({.ids = ids}, hidden, workspace);
    const auto compare = [&](std::size_t, ConstTensorView masked) {
      for (Index i = 0; i < element_count(hidden.shape()); ++i) {
        const double difference = std::abs(static_cast<double>(hidden.data<float>()[i]) - static_cast<double>(masked.as<float>()[i]));
        if (!(difference <= largest)) largest = difference;
      }
    };
    run_without(model.transformer, ids, sets, {}, compare, workspace);
  }
  return largest;
}

WrittenModel write_model(const OpenModel& model, const Options& options, const Texts& texts, const std::vector<HeadId>& order,
                         Workspace& workspace) {
  const std::size_t kept = static_cast<std::size_t>(*options.keep);
  const std::vector<HeadId> removed(order.begin(), order.end() - static_cast<std::ptrdiff_t>(kept));
  std::map<Index, std::vector<Index>> by_layer;
  for (const HeadId& id : removed) by_layer[id.layer].push_back(id.head);
  save_without_heads(model.folder, options.out, by_layer);
  const Transformer pruned = Transformer::load(options.out);
  const auto bytes = [](const std::string& folder) {
    return static_cast<Index>(std::filesystem::file_size(folder + "/model.safetensors"));
  };
  const std::span<const TextIds> timed = std::span(texts.to_measure).first(std::min(kTimedTexts, texts.to_measure.size()));
  return {.folder = options.out,
          .kept = kept,
          .bytes_before = bytes(model.folder),
          .bytes_after = bytes(options.out),
          .difference = largest_difference(model, pruned, removed, texts.to_measure, workspace),
          .time = time_share(model.transformer, pruned, timed, workspace),
          .pairs = kPairs};
}

/// What cannot be is refused before anything is computed.
void check(const Options& options) {
  if (options.json && options.csv) throw Error("--json and --csv exclude each other");
  if (options.keep.has_value() != !options.out.empty()) throw Error("--keep and --out are given together");
  if (options.keep && (options.csv || !options.svg.empty()))
    throw Error("--keep writes a model, --csv and --svg a curve: give one of them");
  if (options.most && *options.most < 1) throw Error(fmt::format("--most is {}, must be at least 1", *options.most));
  if (options.seeds < 0 || options.seeds > 1000) throw Error(fmt::format("--seeds is {}, must be 0 to 1000", options.seeds));
  if (options.keep) check_new_folder(options.out);
}

void check_keep(const Options& options, const OpenModel& model) {
  const auto heads = static_cast<Index>(all_heads(model.transformer.config()).size());
  if (*options.keep < 0 || *options.keep >= heads) {
    throw Error(fmt::format("--keep is {}, {} has {} heads: must be 0 to {}", *options.keep, model.name, heads, heads - 1));
  }
}

std::string run(const Options& options) {
  check(options);
  const OpenModel model = open_model(options.model);
  if (options.keep) check_keep(options, model);
  PruneReport report{.model = model.name, .size = size_text(model.transformer.config()), .seeds = options.seeds};
  const Texts texts = read_texts(model, options, report);
  Workspace workspace(options.threads ? executor_of(*options.threads) : default_executor());
  const std::vector<HeadId> order = order_heads(model, texts, report, workspace);
  if (options.keep) {
    const std::vector<std::size_t> counts = {order.size() - static_cast<std::size_t>(*options.keep)};
    Progress progress(texts.to_measure.size());
    report.curve = pruning_curve(model.transformer, texts.to_measure, order, counts, workspace, [&] { progress.begin("texts"); });
    report.written = write_model(model, options, texts, order, workspace);
  } else {
    measure_curves(model, texts, order, report, workspace);
  }
  if (!options.svg.empty()) write_file(options.svg, prune_svg(report));
  return options.json ? prune_json(report) : options.csv ? prune_csv(report) : prune_table(report, this_terminal());
}

}  // namespace

void add_prune(CLI::App& app, Output& output) {
  CLI::App* command = app.add_subcommand("prune", "Which heads can go, how many, and a checkpoint without them");
  auto options = std::make_shared<Options>();
  command->footer(kFooter);
  add_texts(*command, options->texts);
  add_model_option(*command, options->model);
  add_number(*command, "--most", options->most, "Take at most so many of the texts, spread evenly");
  add_number(*command, "--seeds", options->seeds, "Orders of chance beside (default: 5)");
  add_number(*command, "--keep", options->keep, "With --out: write a model with the N heads that are worth most");
  command->add_option("--out", options->out, "Folder to write it to")->type_name("DIR");
  command->add_option("--svg", options->svg, "Draw the curve to this file")->type_name("FILE");
  add_number(*command, "--threads", options->threads, "Threads (default: all cores)");
  command->add_flag("--json", options->json, "Print JSON");
  command->add_flag("--csv", options->csv, "Print the curve as CSV");
  command->callback([options, &output] { output.text = run(*options); });
}

}  // namespace mha::app
