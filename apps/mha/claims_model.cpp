// Claims about heads of a trained model, asked of the model at hand. They may be false for another one; then they are reported so.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "claims.h"
#include "command.h"
#include "mha/analysis/head_table.h"
#include "mha/analysis/links.h"

namespace mha::app {
namespace {

constexpr double kLittle = 0.99;  // cosine of two sentence vectors that are nearly the same

/// Heads of one layer that hold the two readings of the telescope sentence.
struct SameLayer {
  HeadLink first;
  HeadChain second;
};

std::optional<SameLayer> both_readings(const HeadTable& table, const Sentence& sentence, const Tokenizer& tokenizer) {
  const std::vector<Index> words = plain_units(sentence.words);
  const auto find = [&](const char* word) { return find_word(sentence, tokenizer, word); };
  const Index man = find("man"), astronomer = find("astronomer"), telescope = find("telescope");
  const std::vector<HeadChain> second = heads_with_chain(table, man, astronomer, telescope, words);
  for (const HeadLink& link : heads_with_strongest(table, man, telescope, words)) {
    const auto beside = std::find_if(second.begin(), second.end(), [&](const HeadChain& chain) { return chain.id.layer == link.id.layer; });
    if (beside != second.end()) return SameLayer{link, *beside};
  }
  return std::nullopt;
}

Claim two_readings(const OpenModel& model, const Sentence& sentence, const HeadTable& table) {
  Claim claim{.statement = fmt::format("Two heads of one layer of {} hold the two readings of the telescope sentence.", model.name),
              .holds = false,
              .figures = {}};
  if (const auto found = both_readings(table, sentence, model.tokenizer)) {
    claim.holds = true;
    claim.figures = {fmt::format("reading 1, layer {} head {}: man's strongest word is telescope ({:.3f})", found->first.id.layer,
                                 found->first.id.head, found->first.weight),
                     fmt::format("reading 2, layer {} head {}: man's is astronomer ({:.3f}), astronomer's is telescope ({:.3f})",
                                 found->second.id.layer, found->second.id.head, found->second.first, found->second.second)};
  } else {
    claim.figures = {"no layer has both"};
  }
  return claim;
}

Claim many_are_redundant(const OpenModel& model, const Sentence& sentence) {
  const TransformerConfig& config = model.transformer.config();
  const std::vector<HeadId> heads = all_heads(config);
  Workspace workspace;
  Tensor hidden(DType::F32, {1, static_cast<Index>(sentence.ids.size()), config.d_model});
  const auto vector_without = [&](std::vector<HeadId> zeroed) {
    run_with(model.transformer, sentence.ids, {.temperature = 1.0F, .hidden = {}, .zeroed = std::move(zeroed)}, hidden, workspace);
    return sentence_vector(hidden);
  };
  const std::vector<double> whole = vector_without({});
  Index little = 0;
  double least = 1.0;
  HeadId most;
  for (const HeadId& id : heads) {
    const double same = cosine(whole, vector_without({id}));
    if (same >= kLittle) ++little;
    if (same < least) {
      least = same;
      most = id;
    }
  }
  const auto all = static_cast<Index>(heads.size());
  return {.statement = "Many heads of a trained model are redundant: most can be taken away, one at a time, with little loss.",
          .holds = 2 * little > all,
          .figures = {fmt::format("{} of {} heads: without it, the sentence's vector keeps a cosine of {} or more with the whole model's",
                                  little, all, kLittle),
                      fmt::format("the head that matters most: layer {} head {}, cosine {:.4f}", most.layer, most.head, least)}};
}

}  // namespace

std::vector<Claim> model_claims(const OpenModel& model) {
  const Sentence sentence = read_sentence(model.tokenizer, kTelescope);
  Workspace workspace;
  const HeadTable table = read_heads(model.transformer, sentence.ids, sentence.words, workspace);
  std::vector<Claim> claims;
  claims.push_back(two_readings(model, sentence, table));
  claims.push_back(many_are_redundant(model, sentence));
  return claims;
}

}  // namespace mha::app
