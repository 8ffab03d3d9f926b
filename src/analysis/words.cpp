// Words by name: how a user's "the#2" becomes a position, and what is said where it cannot.
#include <charconv>

#include "core/check.h"
#include "mha/analysis/sentence.h"
#include "mha/error.h"

namespace mha {
namespace {

constexpr std::size_t kListed = 60;  // words listed in an error; an error stays one line that can be read

/// Positions of all words that `name` may stand for, its number aside.
std::vector<Index> matches(std::span<const Unit> words, const WordName& name) {
  std::vector<Index> found;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const Unit& word = words[i];
    const bool same = word.text == name.text || (!word.special && !word.key.empty() && word.key == name.key);
    if (same) found.push_back(static_cast<Index>(i));
  }
  return found;
}

std::string list_words(std::span<const Unit> words) {
  const std::vector<std::string> names = word_names(words);
  std::string list;
  std::size_t listed = 0;
  for (std::size_t i = 0; i < words.size() && listed < kListed; ++i) {
    if (words[i].special) continue;
    if (listed++ > 0) list += ' ';
    list += names[i];
  }
  const std::size_t plain = plain_units(words).size();
  return plain > listed ? core::join(list, " ... (", plain, " words)") : list;
}

}  // namespace

WordName split_word_name(std::string_view name) {
  const std::size_t mark = name.rfind('#');
  if (mark != std::string_view::npos && mark > 0) {
    const std::string_view digits = name.substr(mark + 1);
    Index number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error == std::errc() && end == digits.data() + digits.size() && number > 0) {
      return {.text = std::string(name.substr(0, mark)), .key = {}, .number = number};
    }
  }
  return {.text = std::string(name), .key = {}, .number = 0};
}

Index find_word(std::span<const Unit> words, const WordName& name) {
  const std::vector<Index> found = matches(words, name);
  const Index count = static_cast<Index>(found.size());
  MHA_CHECK(Error, count > 0, "no word \"", name.text, "\" in the text; its words are: ", list_words(words));
  MHA_CHECK(Error, count == 1 || name.number > 0, "\"", name.text, "\" is ", count, " words of the text; choose ", name.text, "#1",
            count > 2 ? " ... " : " or ", name.text, '#', count, ": ", list_words(words));
  MHA_CHECK(Error, name.number <= count, "no word \"", name.text, "#", name.number, "\": the text has \"", name.text, "\" ", count,
            count == 1 ? " time: " : " times: ", list_words(words));
  return found[static_cast<std::size_t>(name.number == 0 ? 0 : name.number - 1)];
}

std::vector<std::string> word_names(std::span<const Unit> words) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::vector<Index> same = matches(words, {.text = words[i].text, .key = words[i].special ? std::string() : words[i].key});
    std::string name = words[i].text;
    for (std::size_t n = 0; same.size() > 1 && n < same.size(); ++n) {
      if (same[n] == static_cast<Index>(i)) name = core::join(name, '#', n + 1);
    }
    names.push_back(std::move(name));
  }
  return names;
}

std::vector<Index> plain_units(std::span<const Unit> units) {
  std::vector<Index> plain;
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (!units[i].special) plain.push_back(static_cast<Index>(i));
  }
  return plain;
}

}  // namespace mha
