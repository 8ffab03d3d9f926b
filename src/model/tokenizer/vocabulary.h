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
  using Entry = Ids::value_type;  // a token and its id

  /// False, with nothing changed, where the token or the id is there already.
  bool add(Kind kind, std::string_view token, Index id) {
    if (this->id(token)) return false;
    const auto [place, is_new] = tokens_.try_emplace(id);
    if (!is_new) return false;
    Ids& ids = kind == Kind::Model ? model_ids_ : added_ids_;
    place->second = ids.emplace_hint(ids.end(), token, id)->first;  // a vocabulary is read in its order
    return true;
  }
  std::optional<Index> id(std::string_view token) const {
    const auto added = find(added_ids_, token);
    return added ? added : find(model_ids_, token);
  }
  std::optional<std::string_view> token(Index id) const {
    const auto place = tokens_.find(id);
    return place == tokens_.end() ? std::nullopt : std::optional(place->second);
  }
  /// The model's own tokens in byte order; an entry never moves.
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
