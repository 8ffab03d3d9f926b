// mha explain: the worked example of multi-head attention in numbers, step by step, every step with its formula. What is printed is what
// the layer computed in one run (layer_walk.h); nothing here computes attention.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "command.h"
#include "json_numbers.h"
#include "layer_walk.h"
#include "mha/error.h"
#include "terminal.h"

namespace mha::app {
namespace {

struct Options {
  std::string text = "money bank";
  Index d_model = 8;
  Index heads = 2;
  std::optional<Index> head;
  bool json = false;
};

constexpr Index kMostHeads = 8;  // printed in full where no head is chosen
constexpr Index kMostRows = 8;   // of a matrix
constexpr int kLabelWidth = 12;
constexpr int kNumberWidth = 8;

constexpr const char* kFooter = R"(Words are split at spaces; each has a random vector of its own, the same in every
run, and the weights are Xavier-initialised: nobody has trained this layer. The
numbers are right, what they mean is nothing. For a trained model: mha view.

Examples:
  mha explain
  mha explain --head 1
  mha explain "the man saw the astronomer" --d-model 12 --heads 3
  mha explain "money bank" --d-model 512 --heads 8
  mha explain --json)";

/// A matrix to print: strides count elements.
struct Matrix {
  const float* data = nullptr;
  Index rows = 0;
  Index columns = 0;
  Index row_stride = 0;
  float at(Index row, Index column) const { return data[row * row_stride + column]; }
};

Matrix matrix_of(const Tensor& tensor) {  // the last two axes of a dense tensor whose others are 1
  const int rank = tensor.view().rank();
  const Index columns = tensor.size(rank - 1);
  return {tensor.data<float>(), tensor.size(rank - 2), columns, columns};
}

/// Head h of [1, tokens, heads, head_dim], as [tokens, head_dim].
Matrix of_head(const Tensor& tensor, Index h) {
  return {tensor.data<float>() + h * tensor.size(3), tensor.size(1), tensor.size(3), tensor.size(2) * tensor.size(3)};
}

/// Head h of [1, heads, tokens, tokens].
Matrix table_of(const Tensor& tensor, Index h) {
  const Index tokens = tensor.size(3);
  return {tensor.data<float>() + h * tokens * tokens, tokens, tokens, tokens};
}

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  if (words.empty()) throw Error("the text has no word");
  return words;
}

/// One vector per word, a function of its letters alone.
Tensor embed(const std::vector<std::string>& words, Index d_model) {
  Tensor x(DType::F32, {1, static_cast<Index>(words.size()), d_model});
  Index row = 0;
  for (const std::string& word : words) {
    std::uint64_t seed = 1;
    for (char letter : word) seed = seed * 131 + static_cast<unsigned char>(letter);
    fill_normal(TensorView(x.data<float>() + row++ * d_model, {d_model}), seed);
  }
  return x;
}

struct Explained {
  std::vector<std::string> words;
  LayerWalk walk;
  Tensor raw;  // [1, heads, tokens, tokens]: Q K^T
  std::optional<Index> head;
};

Explained explain(const Options& options) {
  Explained explained{.words = split_words(options.text), .walk = {}, .raw = {}, .head = options.head};
  const MhaConfig config =
      walk_config({.d_model = options.d_model, .heads = options.heads, .tokens = static_cast<Index>(explained.words.size())});
  if (options.head && (*options.head < 0 || *options.head >= config.heads)) {
    throw Error(fmt::format("--head is {}, there are {} heads counted from 0", *options.head, config.heads));
  }
  explained.walk = walk_layer(config, embed(explained.words, config.d_model));
  explained.raw = explained.walk.scores.clone();
  const float root = std::sqrt(static_cast<float>(config.head_dim));
  float* raw = explained.raw.data<float>();
  std::for_each(raw, raw + element_count(explained.raw.shape()), [root](float& score) { score *= root; });
  return explained;
}

class Page {
 public:
  explicit Page(const Terminal& terminal) : terminal_(terminal) {}

  void title(const std::string& text) { out_ += fmt::format("\n{}\n", bold(text, terminal_)); }
  void note(const std::string& text) { out_ += fmt::format("   {}\n", wrap(text, terminal_.width, 3)); }

  /// "name = formula   [rows, columns]" and the numbers under it.
  void step(const std::string& formula, const Matrix& matrix, const std::vector<std::string>& rows,
            const std::vector<std::string>& columns = {}) {
    out_ += fmt::format("{}. {}   [{}, {}]\n", ++number_, formula, matrix.rows, matrix.columns);
    const Index room = (terminal_.width - kLabelWidth - 3) / kNumberWidth;
    const Index fit = matrix.columns <= room ? room : std::max<Index>(room - 1, 2);  // "..." takes the room of a number
    if (!columns.empty())
      line("", matrix.columns, fit, [&](Index c) { return shorten(columns[static_cast<std::size_t>(c)], kNumberWidth - 1); });
    for (Index r = 0; r < matrix.rows; ++r) {
      if (matrix.rows > kMostRows && r >= kMostRows - 1 && r < matrix.rows - 1) {
        if (r == kMostRows - 1) out_ += fmt::format("   ... {} more rows\n", matrix.rows - kMostRows);
        continue;
      }
      const std::string label = rows.empty() ? std::string() : shorten(rows[static_cast<std::size_t>(r)], kLabelWidth);
      line(label, matrix.columns, fit, [&](Index c) { return fmt::format("{:.3f}", matrix.at(r, c)); });
    }
  }

  std::string text() && { return std::move(out_); }

 private:
  /// At most `fit` columns: the first ones and the last.
  template <class Cell>
  void line(const std::string& label, Index columns, Index fit, Cell&& cell) {
    out_ += "   " + pad_right(label, kLabelWidth);
    for (Index c = 0; c < columns; ++c) {
      if (columns > fit && c >= fit - 1 && c < columns - 1) {
        if (c == fit - 1) out_ += " ...";
        continue;
      }
      out_ += pad_left(cell(c), kNumberWidth);
    }
    out_ += '\n';
  }

  Terminal terminal_;
  std::string out_;
  int number_ = 0;
};

void explain_head(Page& page, const Explained& e, const std::vector<std::string>& words, Index h) {
  const LayerWalk& walk = e.walk;
  page.title(fmt::format("head {}", h));
  if (e.head) {
    const NaiveHead& head = walk.by_head.heads[static_cast<std::size_t>(h)];
    page.step(fmt::format("W_q of head {}: projects {} numbers down to {}", h, walk.config.d_model, walk.config.head_dim),
              matrix_of(head.wq), {});
    page.step("W_k", matrix_of(head.wk), {});
    page.step("W_v", matrix_of(head.wv), {});
  }
  page.step("Q = X W_q: what each token looks for", of_head(walk.q, h), words);
  page.step("K = X W_k: what each token offers to be found by", of_head(walk.k, h), words);
  page.step("V = X W_v: what each token hands over", of_head(walk.v, h), words);
  page.step("Q K^T: each row a token that attends, each column one attended to", table_of(e.raw, h), words, words);
  page.step(fmt::format("scores = Q K^T / sqrt(head_dim) = Q K^T / {:.4g}", std::sqrt(static_cast<double>(walk.config.head_dim))),
            table_of(walk.scores, h), words, words);
  page.step("weights = softmax(scores): exp(score) / sum over the row", table_of(walk.weights, h), words, words);
  page.step("Z = weights V: each token's mixture of what was handed over", of_head(walk.z, h), words);
}

/// Z of head h times its own rows of W_O: what this head adds to the output.
Tensor share_of_output(const LayerWalk& walk, Index h) {
  const Matrix z = of_head(walk.z, h);
  const Index d_model = walk.y.size(2);
  Tensor share(DType::F32, {1, z.rows, d_model});
  const Tensor& wo = walk.by_head.wo;  // [heads * head_dim, d_model]
  for (Index row = 0; row < z.rows; ++row) {
    for (Index column = 0; column < d_model; ++column) {
      double sum = 0.0;
      for (Index d = 0; d < z.columns; ++d) {
        sum += static_cast<double>(z.at(row, d)) * static_cast<double>(wo.data<float>()[(h * z.columns + d) * d_model + column]);
      }
      share.data<float>()[row * d_model + column] = static_cast<float>(sum);
    }
  }
  return share;
}

/// [1, tokens, heads, head_dim] as [tokens, heads * head_dim]: concatenation is a way of reading.
Matrix concatenation(const Tensor& z) {
  const Index width = z.size(2) * z.size(3);
  return {z.data<float>(), z.size(1), width, width};
}

std::string explained_text(const Explained& e, const std::string& text, const Terminal& terminal) {
  const LayerWalk& walk = e.walk;
  const MhaConfig& config = walk.config;
  Page page(terminal);
  std::vector<std::string> words;
  words.reserve(e.words.size());
  for (const std::string& word : e.words) words.push_back(printable(word));
  page.title("multi-head attention in numbers");
  page.note(fmt::format("\"{}\": tokens {}, d_model {}, heads {}, head_dim = d_model / heads = {}", shorten(one_line(text), 60),
                        words.size(), config.d_model, config.heads, config.head_dim));
  page.title("the input");
  page.step("X: one row per token, a random vector for each word", matrix_of(walk.x), words);
  const Index shown = std::min(config.heads, kMostHeads);
  if (e.head) {
    explain_head(page, e, words, *e.head);
  } else {
    for (Index h = 0; h < shown; ++h) explain_head(page, e, words, h);
    if (shown < config.heads) page.note(fmt::format("... heads {} to {} likewise: --head H follows one", shown, config.heads - 1));
  }
  page.title("all heads together");
  std::string parts;
  for (Index h = 0; h < shown; ++h) parts += fmt::format("{}Z{}", h == 0 ? "" : " | ", h);
  page.step(fmt::format("concat = [{}{}]", parts, shown < config.heads ? " | ..." : ""), concatenation(walk.z), words);
  page.step("W_O: mixes the heads", matrix_of(walk.by_head.wo), {});
  page.step("output = concat W_O", matrix_of(walk.y), words);
  if (e.head) {
    const Tensor share = share_of_output(walk, *e.head);
    page.step(fmt::format("of it, from head {}: Z times rows {} to {} of W_O", *e.head, *e.head * config.head_dim,
                          (*e.head + 1) * config.head_dim - 1),
              matrix_of(share), words);
  }
  page.title("checks");
  const bool same = walk.y.shape() == walk.x.shape();
  page.note(fmt::format("The output's shape {} the input's: {} and {}.", same ? "equals" : "DIFFERS from", to_string(walk.y.shape()),
                        to_string(walk.x.shape())));
  page.note(
      fmt::format("Every row of weights sums to 1 (largest deviation {:.1e}), and the weights are the softmax of the scores shown "
                  "(largest difference {:.1e}).",
                  walk.row_sums_off, walk.weights_off));
  page.note(fmt::format("The output is the concatenation times W_O (largest difference {:.1e}).", walk.output_off));
  return std::move(page).text().substr(1);
}

Json matrix_json(const Matrix& matrix) {
  Json rows = Json::array();
  for (Index r = 0; r < matrix.rows; ++r) {
    Json row = Json::array();
    for (Index c = 0; c < matrix.columns; ++c) row.push_back(json_number(matrix.at(r, c)));
    rows.push_back(std::move(row));
  }
  return rows;
}

Json head_numbers_json(const Explained& e, Index h) {
  const NaiveHead& head = e.walk.by_head.heads[static_cast<std::size_t>(h)];
  return {{"head", h},
          {"w_q", matrix_json(matrix_of(head.wq))},
          {"w_k", matrix_json(matrix_of(head.wk))},
          {"w_v", matrix_json(matrix_of(head.wv))},
          {"q", matrix_json(of_head(e.walk.q, h))},
          {"k", matrix_json(of_head(e.walk.k, h))},
          {"v", matrix_json(of_head(e.walk.v, h))},
          {"q_k", matrix_json(table_of(e.raw, h))},
          {"scores", matrix_json(table_of(e.walk.scores, h))},
          {"weights", matrix_json(table_of(e.walk.weights, h))},
          {"z", matrix_json(of_head(e.walk.z, h))}};
}

std::string explained_json(const Explained& e) {
  const MhaConfig& config = e.walk.config;
  Json words = Json::array();
  for (const std::string& word : e.words) words.push_back(printable(word));
  Json json = {{"tokens", std::move(words)}, {"d_model", config.d_model}, {"heads", config.heads}, {"head_dim", config.head_dim}};
  json["x"] = matrix_json(matrix_of(e.walk.x));
  json["by_head"] = Json::array();
  for (Index h = 0; h < config.heads; ++h) {
    if (!e.head || *e.head == h) json["by_head"].push_back(head_numbers_json(e, h));
  }
  json["concat"] = matrix_json(concatenation(e.walk.z));
  json["w_o"] = matrix_json(matrix_of(e.walk.by_head.wo));
  json["output"] = matrix_json(matrix_of(e.walk.y));
  return json.dump() + "\n";
}

}  // namespace

void add_explain(CLI::App& app, Output& output) {
  CLI::App* command = app.add_subcommand("explain", "The layer in numbers: X, Q, K, V, scores, softmax, Z, concatenation, W_O");
  auto options = std::make_shared<Options>();
  command->footer(kFooter);
  add_text(*command, options->text);
  add_number(*command, "--d-model", options->d_model, "Width of the input and of the output (default: 8)");
  add_number(*command, "--heads", options->heads, "Heads (default: 2)");
  add_number(*command, "--head", options->head, "Follow this head alone, with its weights and its share of the output");
  command->add_flag("--json", options->json, "Print JSON, all numbers and all heads");
  command->callback([options, &output] {
    const Explained explained = explain(*options);
    output.text = options->json ? explained_json(explained) : explained_text(explained, options->text, this_terminal());
  });
}

}  // namespace mha::app
