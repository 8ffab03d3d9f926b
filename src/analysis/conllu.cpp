// The reader of CoNLL-U: lines to words, words to a sentence and its text, and which trees are fit for use. Nothing from the file is
// trusted; rules of what is an error and what is counted are in the header.
#include "mha/analysis/conllu.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <istream>
#include <optional>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "mha/error.h"
#include "model/tokenizer/unicode.h"

namespace mha {
namespace {

constexpr std::size_t kColumns = 10;
enum Column : std::uint8_t { kId, kForm, kLemma, kUpos, kXpos, kFeats, kHead, kDeprel, kDeps, kMisc };
using Columns = std::array<std::string_view, kColumns>;

constexpr Index kHuge = Index{1} << 40;  // stands for any number that is too large for an Index

/// A whole number of digits alone.
std::optional<Index> number_of(std::string_view text) {
  if (text.empty() || !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; })) return std::nullopt;
  Index value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::min(value, kHuge) : kHuge;
}

/// Whether MISC holds SpaceAfter=No.
bool space_after(std::string_view misc) {
  while (!misc.empty()) {
    const std::size_t end = std::min(misc.find('|'), misc.size());
    if (misc.substr(0, end) == "SpaceAfter=No") return false;
    misc.remove_prefix(std::min(end + 1, misc.size()));
  }
  return true;
}

/// Which of the four kinds of lines an ID begins.
struct Id {
  enum class Kind : std::uint8_t { Bad, Word, Range, Empty } kind = Kind::Bad;
  Index first = 0;
  Index last = 0;
};

Id id_of(std::string_view text) {
  const std::size_t mark = text.find_first_of("-.");
  const std::optional<Index> first = number_of(text.substr(0, mark));
  if (!first) return {};
  if (mark == std::string_view::npos) return {Id::Kind::Word, *first, *first};
  const std::optional<Index> last = number_of(text.substr(mark + 1));
  if (!last) return {};
  return {text[mark] == '-' ? Id::Kind::Range : Id::Kind::Empty, *first, *last};
}

/// A sentence under way. Its functions answer what is wrong with a line, nothing where it is right.
class Builder {
 public:
  explicit Builder(TreeSentence& sentence) : sentence_(&sentence) {}

  std::string add_range(const Id& id, const Columns& columns) {
    const Index next = words() + 1;
    if (id.first != next || id.last <= id.first) return core::join("multiword token where word ", next, " is due");
    if (next <= range_.last) return core::join("multiword token inside ", range_.first, "-", range_.last);
    range_ = id;
    spelled_.clear();
    start_token(columns[kForm]);
    space_ = space_after(columns[kMisc]);
    return {};
  }

  std::string add_word(const Id& id, const Columns& columns) {
    const Index next = words() + 1;
    if (id.first != next) return core::join("word ", next, " is due");
    const bool inside = next <= range_.last;
    if (!inside) {
      start_token(columns[kForm]);
      space_ = space_after(columns[kMisc]);
    }
    TreeWord word{.form = std::string(columns[kForm]),
                  .upos = std::string(columns[kUpos]),
                  .relation = std::string(columns[kDeprel]),
                  .head = TreeWord::kNoArc,
                  .bytes = token_};
    const std::optional<Index> head = number_of(columns[kHead]);
    if (!head && columns[kHead] != "_") return std::string("HEAD is neither a number nor _");
    heads_.push_back(head);
    sentence_->words.push_back(std::move(word));
    if (inside) spell(columns[kForm]);
    return {};
  }

  /// Heads by position, once all words are known.
  std::string finish(ConlluCounts& counts) {
    if (words() == 0) return "a sentence without words";
    if (range_.last > words())
      return core::join("multiword token ", range_.first, "-", range_.last, " in a sentence of ", words(), " words");
    for (std::size_t i = 0; i < heads_.size(); ++i) {
      TreeWord& word = sentence_->words[i];
      if (!heads_[i]) {
        ++counts.missing_heads;
      } else if (*heads_[i] > words()) {
        ++counts.heads_beyond;
      } else if (word.relation == "_" && *heads_[i] > 0) {
        ++counts.missing_relations;
      } else {
        word.head = *heads_[i] == 0 ? TreeWord::kRoot : *heads_[i] - 1;
      }
    }
    return {};
  }

  Index words() const { return static_cast<Index>(sentence_->words.size()); }

 private:
  void start_token(std::string_view form) {
    std::string& text = sentence_->text;
    if (!text.empty() && space_) text += ' ';
    token_.begin = static_cast<Index>(text.size());
    text += form;
    token_.end = static_cast<Index>(text.size());
  }

  /// Once the words of a multiword token spell it ("do" + "n't"), each has its own part of the text.
  void spell(std::string_view form) {
    spelled_ += form;
    if (words() < range_.last) return;
    if (spelled_ != std::string_view(sentence_->text).substr(static_cast<std::size_t>(token_.begin))) return;
    Index at = token_.begin;
    for (Index i = range_.first - 1; i < range_.last; ++i) {
      TreeWord& word = sentence_->words[static_cast<std::size_t>(i)];
      word.bytes = {at, at + static_cast<Index>(word.form.size())};
      at = word.bytes.end;
    }
  }

  TreeSentence* sentence_;
  std::vector<std::optional<Index>> heads_;
  Id range_;               // the last multiword token
  TextSpan token_;         // of the text, the last token
  bool space_ = true;      // after it
  std::string spelled_{};  // forms of the words of range_ so far
};

bool has_cycle(const std::vector<TreeWord>& words) {
  enum : std::uint8_t { kNew, kOnPath, kDone };
  std::vector<std::uint8_t> state(words.size(), kNew);
  for (std::size_t start = 0; start < words.size(); ++start) {
    const auto walk = [&](std::uint8_t from, std::uint8_t to) {
      Index at = static_cast<Index>(start);
      while (at >= 0 && state[static_cast<std::size_t>(at)] == from) {
        state[static_cast<std::size_t>(at)] = to;
        at = words[static_cast<std::size_t>(at)].head;
      }
      return at;
    };
    const Index end = walk(kNew, kOnPath);
    if (end >= 0 && state[static_cast<std::size_t>(end)] == kOnPath) return true;
    walk(kOnPath, kDone);
  }
  return false;
}

bool has_several_roots(const std::vector<TreeWord>& words) {
  return std::count_if(words.begin(), words.end(), [](const TreeWord& word) { return word.head == TreeWord::kRoot; }) > 1;
}

std::optional<std::string_view> text_comment(std::string_view line) {
  constexpr std::string_view kText = "# text = ";
  if (!line.starts_with(kText)) return std::nullopt;
  return line.substr(kText.size());
}

}  // namespace

ConlluReader::ConlluReader(std::istream& in, std::string name) : in_(&in), name_(std::move(name)) {}

void ConlluReader::fail(const std::string& what) const { throw FormatError(core::join(name_, ", line ", line_, ": ", what)); }

bool ConlluReader::read_line(std::string& line) {
  line.clear();
  char letter = 0;
  bool any = false;
  while (in_->get(letter)) {
    if (!any) ++line_;
    any = true;
    if (letter == '\n') break;
    if (std::cmp_equal(line.size(), kLongestLine)) fail(core::join("longer than ", kLongestLine, " bytes"));
    line += letter;
  }
  MHA_CHECK(IoError, !in_->bad(), name_, ": cannot be read after line ", line_);
  if (!any) return false;
  if (line.ends_with('\r')) line.pop_back();
  try {
    model::decode_utf8(line);
  } catch (const FormatError& error) {
    fail(error.what());
  }
  return true;
}

namespace {

/// Why a line is not ten columns, or nothing.
std::string split(std::string_view line, Columns& columns) {
  std::size_t count = 0;
  for (std::size_t begin = 0; begin <= line.size(); ++count) {
    const std::size_t end = std::min(line.find('\t', begin), line.size());
    if (count < kColumns) columns[count] = line.substr(begin, end - begin);
    begin = end + 1;
  }
  if (count != kColumns) return core::join(count, " columns, must be ", kColumns);
  for (std::size_t i = 0; i < kColumns; ++i) {
    if (columns[i].empty()) return core::join("column ", i + 1, " is empty");
  }
  return {};
}

}  // namespace

bool ConlluReader::read_sentence(TreeSentence& sentence) {
  sentence = {};
  Builder builder(sentence);
  std::optional<std::string> told;
  std::string line;
  bool any = false;
  while (read_line(line)) {
    if (line.empty()) {
      if (any) break;
      continue;
    }
    if (line.front() == '#') {
      if (any) fail("a comment inside a sentence");
      if (const auto text = text_comment(line)) told = *text;
      continue;
    }
    Columns columns;
    std::string wrong = split(line, columns);
    const Id id = wrong.empty() ? id_of(columns[kId]) : Id{};
    if (wrong.empty() && id.kind == Id::Kind::Bad) wrong = "ID is neither 1 nor 1-2 nor 1.1";
    if (id.kind == Id::Kind::Word) wrong = builder.add_word(id, columns);
    if (id.kind == Id::Kind::Range) wrong = builder.add_range(id, columns);
    if (id.kind == Id::Kind::Empty && id.first != builder.words()) wrong = core::join("empty node after word ", builder.words());
    if (!wrong.empty()) fail(wrong);
    if (builder.words() > kMostWords) fail(core::join("more than ", kMostWords, " words in a sentence"));
    counts_.multiword_tokens += id.kind == Id::Kind::Range ? 1 : 0;
    counts_.empty_nodes += id.kind == Id::Kind::Empty ? 1 : 0;
    if (!any) sentence.line = line_;
    any = true;
  }
  if (!any) return false;
  lost_ = {};
  if (const std::string wrong = builder.finish(lost_); !wrong.empty()) fail(wrong);
  ++counts_.sentences;
  counts_.words += builder.words();
  counts_.other_texts += told && *told != sentence.text ? 1 : 0;
  return true;
}

bool ConlluReader::next(TreeSentence& sentence) {
  while (read_sentence(sentence)) {
    if (has_cycle(sentence.words)) {
      ++counts_.cyclic;
    } else if (has_several_roots(sentence.words)) {
      ++counts_.several_roots;
    } else {
      counts_.missing_heads += lost_.missing_heads;
      counts_.heads_beyond += lost_.heads_beyond;
      counts_.missing_relations += lost_.missing_relations;
      return true;
    }
  }
  return false;
}

}  // namespace mha
