// The largest scores of every lane, kept sorted while tiles go by. Included by leaves.inl, before its table; same rules.
// A vector of scores is looked at once; only where some lane beats its last entry does the list move, for all lanes at once.

constexpr int kTogether = 4;  // scores that go down the list in one pass over it
constexpr int kLooked = 32;   // keys that are looked at before the list moves

/// R vectors of scores, of keys in ascending order, go down the list side by side. What is smaller than a score moves down by one, what is
/// equal stays: it is of an earlier key.
template <int R>
[[gnu::always_inline]] inline void move_down(const float* scores, Index ld, const std::int32_t* picked, std::int32_t first_key,
                                             Largest to) {
  F32 score[R];
  F32 carried[R];
  Isa::I32 key[R];
#pragma GCC unroll 4
  for (int i = 0; i < R; ++i) {
    score[i] = carried[i] = Isa::load(scores + picked[i] * ld);
    key[i] = Isa::set_int(first_key + picked[i]);
  }
  for (int j = 0; j < to.count; ++j) {
    F32 kept = Isa::load(to.score + j * ld);
    Isa::I32 kept_key = Isa::load(to.key + j * ld);
#pragma GCC unroll 4
    for (int i = 0; i < R; ++i) {
      const F32 down = Isa::where_less(kept, score[i], kept, carried[i]);
      const Isa::I32 down_key = Isa::where_less(kept, score[i], kept_key, key[i]);
      kept_key = Isa::where_less(kept, score[i], key[i], kept_key);
      kept = Isa::where_less(kept, score[i], carried[i], kept);
      carried[i] = down;
      key[i] = down_key;
    }
    Isa::store(to.score + j * ld, kept);
    Isa::store(to.key + j * ld, kept_key);
  }
}

void keep_largest(const float* scores, Index ld, int vectors, Index keys, std::int32_t first_key, Largest to) {
  std::int32_t picked[kLooked + 1];
  for (int v = 0; v < vectors; ++v, scores += kLanes, to.score += kLanes, to.key += kLanes) {
    for (Index first = 0; first < keys; first += kLooked) {
      const F32 last = Isa::load(to.score + (to.count - 1) * ld);
      const auto end = static_cast<std::int32_t>(keys < first + kLooked ? keys : first + kLooked);
      int count = 0;
      for (auto k = static_cast<std::int32_t>(first); k < end; ++k) {
        picked[count] = k;  // without a branch, which could not be foretold
        count += Isa::any_less(last, Isa::load(scores + k * ld)) ? 1 : 0;
      }
      int i = 0;
      for (; i + kTogether <= count; i += kTogether) move_down<kTogether>(scores, ld, picked + i, first_key, to);
      switch (count - i) {
        case 3:
          move_down<3>(scores, ld, picked + i, first_key, to);
          break;
        case 2:
          move_down<2>(scores, ld, picked + i, first_key, to);
          break;
        case 1:
          move_down<1>(scores, ld, picked + i, first_key, to);
          break;
        default:
          break;
      }
    }
  }
}
