// What the rows of a task see of its keys, from the mask rules, kv_lengths and the boolean table. Found once and kept by a worker for its
// next tasks: the heads of a sequence see alike unless the table says otherwise. Scores and biases are none of its business.
#pragma once

#include "attention/plan.h"
#include "core/arena.h"

namespace mha::attention {

/// What the rows of one vector see, where each sees at most one interval: every row sees [last_lo, first_hi), none sees anything outside
/// [first_lo, last_hi).
struct VectorSight {
  bool single;  // false: some row sees several intervals, and the rest says nothing
  Index first_lo, last_lo;
  Index first_hi, last_hi;
};

inline constexpr int kWordKeys = 32;
/// Keys of the boolean table that are kept as bits; a multiple of every key_tile. Longer tables are gone through in such stretches, by each
/// head anew: memory must not grow with them.
inline constexpr Index kTableKeys = 8192;

struct Sight {
  RowIntervals* visible = nullptr;  // per row of the task; null where rules and lengths let every row see every key
  VectorSight* vectors = nullptr;   // per vector of rows; null likewise
  std::uint32_t* table = nullptr;   // [row, words]: bit i of word w set where the row may attend to key table_keys.lo + 32 w + i; null
                                    // without `allowed`
  Interval table_keys = {};
  Index words = 0;                                                                             // of a row in `table`
  Task task = {.batch = -1, .kv_head = 0, .first_row = 0, .rows = 0, .split = 0, .keys = {}};  // of the last `look`
};

/// Room for what the rows of any task of the plan see, of `keys` keys at most.
Sight take_sight(const Problem& problem, const Plan& plan, Index keys, Arena& arena);
/// Bytes that it takes.
std::size_t sight_bytes(const Problem& problem, const Plan& plan, Index keys);
/// Finds what the task's rows see, unless the rows of the last one saw the same.
void look(const Problem& problem, const Task& task, int lanes, Sight& sight);
/// From the first key any of its rows sees to the last, by rules and lengths; the table is not looked at.
Interval seen_keys(const Sight& sight);
/// Makes sure that the table covers the keys of a tile. Tiles of a task begin a multiple of kWordKeys apart.
void look_at_keys(const Problem& problem, Interval tile, Sight& sight);

/// Bit i of word w set where key keys.lo + 32 w + i lies in some interval and before keys.hi.
void interval_words(const RowIntervals& row, Interval keys, std::uint32_t* words);

}  // namespace mha::attention
