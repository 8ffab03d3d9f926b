// Any bytes as CoNLL-U: an mha::Error, or sentences that keep what the header promises of them.
#include <sstream>
#include <string>

#include "fuzz/fuzz.h"
#include "mha/analysis/conllu.h"
#include "mha/error.h"

namespace mha::test {
namespace {

void check(const TreeSentence& sentence) {
  const auto count = static_cast<Index>(sentence.words.size());
  require(count > 0 && sentence.line > 0, "a sentence has words and a line");
  Index roots = 0;
  Index end = 0;
  for (Index w = 0; w < count; ++w) {
    const TreeWord& word = sentence.words[static_cast<std::size_t>(w)];
    require(word.head >= TreeWord::kNoArc && word.head < count, "a head is a word, the root or none");
    require(word.bytes.begin >= 0 && word.bytes.begin < word.bytes.end && word.bytes.end <= static_cast<Index>(sentence.text.size()),
            "a word stands in the text");
    require(end <= word.bytes.end, "words stand in order");
    end = word.bytes.end;
    roots += word.head == TreeWord::kRoot ? 1 : 0;
    Index at = word.head;
    for (Index steps = 0; at >= 0 && steps <= count; ++steps) at = sentence.words[static_cast<std::size_t>(at)].head;
    require(at < 0, "there is no cycle");
  }
  require(roots <= 1, "there is one root at most");
}

}  // namespace
}  // namespace mha::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  mha::ConlluReader reader(in, "fuzz");
  try {
    mha::Index given = 0;
    for (mha::TreeSentence sentence; reader.next(sentence); ++given) mha::test::check(sentence);
    const mha::ConlluCounts& counts = reader.counts();
    mha::test::require(counts.sentences == given + counts.cyclic + counts.several_roots, "every sentence is given or counted");
  } catch (const mha::Error& error) {
    mha::test::require_line(error);
  }
  return 0;
}
