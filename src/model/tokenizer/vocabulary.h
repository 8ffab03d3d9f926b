// Token <-> id: the model's own vocabulary and the tokens added to it. Owned by the tokenizer; WordPiece cuts words into tokens of the
// model alone, ids and tokens are looked up in both.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "mha/tensor.h"

namespace mha::model {

class Vocabulary {
 public:
  static constexpr Index kMostId = (Index{1} << 31) - 1;
  enum class Kind { Model, Added };

  /// False, with nothing changed, where the token or the id is there already.
  bool add(Kind kind, std::string_view token, Index id) {
    if (tokens_.contains(id) || this->id(token)) return false;
    const auto [place, is_new] = (kind == Kind::Model ? model_ids_ : added_ids_).try_emplace(std::string(token), id);
    tokens_.emplace(id, place->first);
    return is_new;
  }
  std::optional<Index> model_id(std::string_view token) const { return find(model_ids_, token); }
  std::optional<Index> id(std::string_view token) const {
    const auto added = find(added_ids_, token);
    return added ? added : model_id(token);
  }
  std::optional<std::string_view> token(Index id) const {
    const auto place = tokens_.find(id);
    return place == tokens_.end() ? std::nullopt : std::optional(place->second);
  }
  Index size() const { return static_cast<Index>(tokens_.size()); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Ids = std::unordered_map<std::string, Index, Hash, std::equal_to<>>;

  static std::optional<Index> find(const Ids& ids, std::string_view token) {
    const auto place = ids.find(token);
    return place == ids.end() ? std::nullopt : std::optional(place->second);
  }

  Ids model_ids_;
  Ids added_ids_;
  std::unordered_map<Index, std::string_view> tokens_;  // views of the keys above, which never move
};

}  // namespace mha::model
