// How much a head usually attends from a word to the word at a given distance, whatever the words are: what a single link is held against.
//
//   mha::UsualWeights usual = mha::usual_weights(model, tokenizer, mha::plain_sentences(), workspace);
//   std::optional<double> before = usual.at({.layer = 0, .head = 3}, -1);
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mha/analysis/head_table.h"

namespace mha {

/// Sums over pairs of words, by head and signed distance (position of the word attended to minus that of the word attending, special units
/// not counted). Plain data, so that it can be stored.
struct UsualWeights {
  static constexpr Index kReach = 32;  // distances -kReach..kReach are kept

  Index layers = 0;
  Index heads = 0;
  std::vector<Index> pairs;  // [2 * kReach + 1]
  std::vector<double> sums;  // [layers, heads, 2 * kReach + 1]

  UsualWeights() = default;
  UsualWeights(Index layers, Index heads);

  /// Adds all pairs of plain words of one sentence.
  void add(const HeadTable& table, std::span<const Unit> words);
  /// Mean weight at that distance; nothing where no pair was seen. Throws ShapeError for a head that is not there.
  std::optional<double> at(HeadId id, Index distance) const;
  /// Number of pairs behind `at`.
  Index seen(Index distance) const;
};

/// The sentences written for this purpose (data/plain_sentences.txt), carried in the library.
std::span<const std::string> plain_sentences();

/// Runs the model over all sentences.
UsualWeights usual_weights(const Transformer& model, const Tokenizer& tokenizer, std::span<const std::string> sentences,
                           Workspace& workspace);

/// Signed distance between two units, special ones not counted; nothing where one of them is special.
std::optional<Index> word_distance(std::span<const Unit> units, Index from, Index to);

}  // namespace mha
