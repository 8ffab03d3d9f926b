// Token <-> id: the model's own vocabulary and the tokens added to it. Owned by the tokenizer; WordPiece cuts words into tokens of the
// model alone, ids and tokens are looked up in both. Ordered maps, as a hostile file could choose ids that all fall into one hash bucket.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "mha/tensor.h"

namespace mha::model {

class Vocabulary {
 public:
  static constexpr Index kMostId = (Index{1} << 31) - 1;
  static constexpr std::size_t kMostBytes = 1000;  // of a token: every occurrence in a text is a copy of it
  enum class Kind : std::uint8_t { Model, Added };
  using Ids = std::map<std::string, Index, std::less<>>;

  /// False, with nothing changed, where the token or the id is there already.
  bool add(Kind kind, std::string_view token, Index id) {
    if (tokens_.contains(id) || this->id(token)) return false;
    const auto [place, is_new] = (kind == Kind::Model ? model_ids_ : added_ids_).try_emplace(std::string(token), id);
    tokens_.emplace(id, place->first);
    return is_new;
  }
  std::optional<Index> id(std::string_view token) const {
    const auto added = find(added_ids_, token);
    return added ? added : find(model_ids_, token);
  }
  std::optional<std::string_view> token(Index id) const {
    const auto place = tokens_.find(id);
    return place == tokens_.end() ? std::nullopt : std::optional(place->second);
  }
  /// The model's own tokens in byte order; the strings never move.
  const Ids& model_ids() const { return model_ids_; }
  Index size() const { return static_cast<Index>(tokens_.size()); }

 private:
  static std::optional<Index> find(const Ids& ids, std::string_view token) {
    const auto place = ids.find(token);
    return place == ids.end() ? std::nullopt : std::optional(place->second);
  }

  Ids model_ids_;
  Ids added_ids_;
  std::map<Index, std::string_view> tokens_;  // views of the keys above, which never move
};

}  // namespace mha::model
