// Test helper of tokenizer_live.py: reads texts from standard input, each as "<add_special: 0 or 1> <bytes>\n" and the bytes themselves,
// and writes one line of JSON per text: what Tokenizer makes of it, or the error. Usage: tokenize_dump TOKENIZER_JSON
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "mha/error.h"
#include "mha/model/tokenizer.h"

namespace {

nlohmann::json spans(const std::vector<mha::TextSpan>& list) {
  nlohmann::json out = nlohmann::json::array();
  for (const mha::TextSpan& span : list) out.push_back({span.begin, span.end});
  return out;
}

std::string dump(const mha::Tokenizer& tokenizer, const std::string& text, bool add_special) {
  try {
    const mha::Encoding e = tokenizer.encode(text, add_special);
    return nlohmann::json{{"ids", e.ids},     {"tokens", e.tokens},   {"chars", spans(e.chars)}, {"bytes", spans(e.bytes)},
                          {"words", e.words}, {"special", e.special}, {"types", e.token_types}}
        .dump();
  } catch (const mha::Error& error) {
    return nlohmann::json{{"error", error.what()}}.dump();
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: tokenize_dump TOKENIZER_JSON\n";
    return 2;
  }
  std::ios::sync_with_stdio(false);
  try {
    const mha::Tokenizer tokenizer = mha::Tokenizer::load(arguments[1]);
    int add_special = 0;
    std::size_t bytes = 0;
    while (std::cin >> add_special >> bytes) {
      std::string text(bytes, '\0');
      std::cin.get();
      if (!std::cin.read(text.data(), static_cast<std::streamsize>(bytes))) {
        std::cerr << "tokenize_dump: the input ends inside a text\n";
        return 1;
      }
      std::cout << dump(tokenizer, text, add_special != 0) << '\n';
    }
  } catch (const mha::Error& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
  return 0;
}
