// Every head of a pretrained model: which word does the last word look at, head by head? Give the model's folder as argument.
#include <cstdio>
#include <string>

#include "mha/mha.h"
#include "mha/model/tokenizer.h"
#include "mha/model/transformer.h"

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::printf("usage: 03_heads FOLDER, a Hugging Face folder with config.json, model.safetensors and tokenizer.json\n");
    return 0;
  }
  const auto model = mha::Transformer::load(argv[1]);
  const auto tokenizer = mha::Tokenizer::load(std::string(argv[1]) + "/tokenizer.json");
  const mha::Encoding text = tokenizer.encode("The man saw the astronomer with a telescope.");
  const auto length = static_cast<mha::Index>(text.ids.size());

  mha::Workspace workspace;
  mha::Workspace inner;  // for the hook: the model's own is busy while it runs
  mha::Tensor hidden(mha::DType::F32, {1, length, model.config().d_model});
  mha::Tensor row(mha::DType::F32, {1, length});
  model.forward({.ids = text.ids}, hidden, workspace, [&](mha::Index layer, const mha::MhaTrace& trace) {
    for (mha::Index head = 0; head < model.config().heads; ++head) {
      const mha::Index query = length - 3;  // "telescope"
      mha::attention_weights(trace.spec, {.q = trace.q, .k = trace.k, .kv_lengths = trace.kv_lengths}, trace.lse,
                             {.batch = 0, .head = head, .queries = {query, query + 1}, .keys = {0, length}}, row, inner);
      mha::Index best = 1;
      for (mha::Index k = 1; k + 2 < length; ++k) {
        if (row.data<float>()[k] > row.data<float>()[best]) best = k;
      }
      std::printf("layer %d head %2d: telescope -> %s (%.2f)\n", static_cast<int>(layer), static_cast<int>(head),
                  text.tokens[static_cast<std::size_t>(best)].c_str(), static_cast<double>(row.data<float>()[best]));
    }
  });
  return 0;
} catch (const mha::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
