// Small trees of own sentences, for tests of treebanks and the scores made of them.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "mha/analysis/conllu.h"

namespace mha::test {

/// CoNLL-U of words written as "form UPOS head relation", with MISC after them where it is not "_"; IDs are added.
inline std::string conllu(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::istringstream in(words[i]);
    std::string form, upos, head, relation, misc = "_";
    in >> form >> upos >> head >> relation >> misc;
    text += std::to_string(i + 1) + '\t' + form + "\t_\t" + upos + "\t_\t_\t" + head + '\t' + relation + "\t_\t" + misc + '\n';
  }
  return text + '\n';
}

/// The same of a tree; every word with a space after it.
inline std::string conllu(const TreeSentence& sentence) {
  std::vector<std::string> words;
  for (const TreeWord& word : sentence.words) {
    words.push_back(word.form + ' ' + word.upos + ' ' + std::to_string(word.head + 1) + ' ' + word.relation);
  }
  return conllu(words);
}

/// The tree itself, cycles and several roots allowed.
inline TreeSentence tree(const std::vector<std::string>& words) {
  TreeSentence sentence;
  bool space = false;
  for (const std::string& line : words) {
    std::istringstream in(line);
    TreeWord word;
    std::string misc;
    in >> word.form >> word.upos >> word.head >> word.relation >> misc;
    --word.head;  // the root, 0, becomes TreeWord::kRoot
    if (space) sentence.text += ' ';
    word.bytes.begin = static_cast<Index>(sentence.text.size());
    sentence.text += word.form;
    word.bytes.end = static_cast<Index>(sentence.text.size());
    space = misc != "SpaceAfter=No";
    sentence.words.push_back(word);
  }
  return sentence;
}

}  // namespace mha::test
