// The search for added tokens and the reading of their part of tokenizer.json.
#include "model/tokenizer/added_tokens.h"

#include <algorithm>
#include <set>

#include "core/check.h"

namespace mha::model {

const AddedTokens::Token* AddedTokens::match(const Patterns& patterns, std::span<const Letter> text) {
  const auto candidates = patterns.find(text.front().code);
  if (candidates == patterns.end()) return nullptr;
  for (const Token& token : candidates->second) {
    if (token.pattern.size() <= text.size() &&
        std::equal(token.pattern.begin(), token.pattern.end(), text.begin(), [](char32_t c, const Letter& l) { return c == l.code; })) {
      return &token;
    }
  }
  return nullptr;
}

std::vector<AddedTokens::Part> AddedTokens::split(std::span<const Letter> text, Stage stage) const {
  std::vector<Part> parts;
  std::size_t done = 0;  // letters that are in `parts`
  for (std::size_t at = 0; at < text.size();) {
    const Token* const token = match(patterns(stage), text.subspan(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + token->pattern.size();
    at = end;  // also where the match is discarded: its letters are not searched again
    const bool inside_word = (begin > 0 && is_word(text[begin - 1].code)) || (end < text.size() && is_word(text[end].code));
    if (token->single_word && inside_word) continue;
    if (token->strip_left) {
      while (begin > done && is_whitespace(text[begin - 1].code)) --begin;
    }
    if (token->strip_right) {
      end = std::max(end, done);  // white space that the predecessor has swallowed is not gone through again
      while (end < text.size() && is_whitespace(text[end].code)) ++end;
    }
    begin = std::max(begin, done);  // a token of white space that its predecessor has swallowed
    if (begin >= end) continue;
    if (done < begin) parts.push_back({kNoToken, done, begin});
    parts.push_back({token->id, begin, end});
    done = end;
  }
  if (done < text.size()) parts.push_back({kNoToken, done, text.size()});
  return parts;
}

AddedTokens AddedTokens::read(const JsonFields& file, const Normalizer& normalizer, Vocabulary& vocabulary) {
  AddedTokens added;
  if (!file.has("added_tokens")) return added;
  const Json& list = file.at("added_tokens");
  if (!list.is_array()) file.fail("added_tokens", core::join("is ", list.type_name(), ", a list was expected"));
  std::set<std::pair<bool, std::u32string>> seen;
  Index next_id = vocabulary.size();  // the package numbers tokens that are not in the model's vocabulary from here
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonFields fields(list[i], file.file(), core::join("added_tokens[", i, "]"));
    const std::string content = fields.text("content");
    const Index id = fields.integer("id", 0, Vocabulary::kMostId);
    if (content.size() > Vocabulary::kMostBytes) {
      fields.fail("content", core::join("has ", content.size(), " bytes, at most ", Vocabulary::kMostBytes, " are taken"));
    }
    const auto known = vocabulary.id(content);
    if (known && *known != id) fields.fail("id", core::join("is ", id, ", but ", printable(content), " has the id ", *known));
    if (!known) {
      if (id != next_id) fields.fail("id", core::join("is ", id, ", the next free id is ", next_id));
      if (!vocabulary.add(Vocabulary::Kind::Added, content, id)) fields.fail("id", core::join(id, " belongs to another token"));
      ++next_id;
    }
    const bool normalized = fields.flag("normalized");
    Letters letters = decode_utf8(content);
    if (normalized) normalizer.apply(letters);
    Token token{.id = id,
                .pattern = {},
                .single_word = fields.flag("single_word"),
                .strip_left = fields.flag("lstrip"),
                .strip_right = fields.flag("rstrip")};
    for (const Letter& letter : letters) token.pattern += letter.code;
    if (token.pattern.empty()) fields.fail("content", printable(content) + " is empty, or nothing is left of it after normalisation");
    if (!seen.emplace(normalized, token.pattern).second) fields.fail("content", printable(content) + " is there twice");
    (normalized ? added.normalized_ : added.original_)[token.pattern.front()].push_back(std::move(token));
  }
  for (Patterns* patterns : {&added.original_, &added.normalized_}) {
    for (auto& [first, tokens] : *patterns) {
      std::sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) { return a.pattern.size() > b.pattern.size(); });
    }
  }
  return added;
}

}  // namespace mha::model
