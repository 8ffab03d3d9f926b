#include "attention/sight.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "attention/validate.h"

namespace mha::attention {

namespace {

bool by_rules(const Problem& p) { return !p.spec->mask.empty() || !p.inputs->kv_lengths.empty() || p.head_dim == 0; }

Index words_of(Index keys) { return (keys + kWordKeys - 1) / kWordKeys; }

struct Room {
  Index rows, vectors, words;
};
Room room_for(const Problem& p, const Plan& plan, Index keys) {
  const Index vectors = (std::min(plan.rows_per_task, p.q_len * p.group) + plan.lanes - 1) / plan.lanes;
  return {.rows = vectors * plan.lanes, .vectors = vectors, .words = p.allowed ? words_of(std::min(keys, kTableKeys)) : 0};
}

/// Whether the rows of two tasks see the same keys.
bool alike(const Problem& p, const Task& a, const Task& b) {
  const bool batches = p.inputs->kv_lengths.empty() && (!p.allowed || p.allowed.stride[0] == 0);
  const bool heads = !p.allowed || p.allowed.stride[1] == 0;
  return a.first_row == b.first_row && a.rows == b.rows && a.keys.lo == b.keys.lo && a.keys.hi == b.keys.hi &&
         (a.batch == b.batch || (batches && a.batch >= 0)) && (a.kv_head == b.kv_head || heads);
}

void find_visible(const Problem& p, const Task& task, RowIntervals* visible) {
  const MaskContext context{.q_len = p.q_len, .kv_len = p.kv_len, .offset = offset_of(*p.spec, *p.inputs, task.batch)};
  RowIntervals existing;  // none where head_dim is 0: without a dimension there are no scores, and every row is empty
  if (p.head_dim > 0) existing.add({0, kv_len_of(*p.inputs, task.batch)});
  const bool cut = existing.count == 0 || existing.items[0].hi < p.kv_len;
  Index known = -1;  // the heads of a group see alike
  for (Index r = 0; r < task.rows; ++r) {
    const Index query = (task.first_row + r) / p.group;
    if (query == known) {
      visible[r] = visible[r - 1];
    } else {
      visible[r] = p.spec->mask.visible(query, context);
      if (cut) visible[r] = intersect(visible[r], existing);
    }
    known = query;
  }
}

void find_vectors(const RowIntervals* visible, Index rows, int lanes, VectorSight* vectors) {
  constexpr Index kFar = std::numeric_limits<Index>::max();
  for (Index v = 0; v * lanes < rows; ++v) {
    VectorSight& of = vectors[v];
    of = {.single = true, .first_lo = kFar, .last_lo = 0, .first_hi = kFar, .last_hi = 0};
    for (Index row = v * lanes; row < std::min(rows, (v + 1) * lanes); ++row) {
      of.single &= visible[row].count <= 1;
      if (visible[row].count == 0) {  // nothing is seen by every row
        of.first_hi = 0;
        continue;
      }
      const Interval seen = visible[row].items[0];
      of.first_lo = std::min(of.first_lo, seen.lo);
      of.last_lo = std::max(of.last_lo, seen.lo);
      of.first_hi = std::min(of.first_hi, seen.hi);
      of.last_hi = std::max(of.last_hi, seen.hi);
    }
  }
}

/// Bit i set where byte i of the eight is not 0.
std::uint32_t nonzero_bits(const std::byte* bytes) {
  std::uint64_t x;
  std::memcpy(&x, bytes, sizeof(x));
  constexpr std::uint64_t kLow = 0x7F7F7F7F7F7F7F7FU;
  const std::uint64_t ones = ((((x & kLow) + kLow) | x) & ~kLow) >> 7U;                  // 1 in each byte that is not 0
  return static_cast<std::uint32_t>((ones * std::uint64_t{0x0102040810204080}) >> 56U);  // byte i moves to bit 56 + i
}

/// The table's row, 32 keys to a word.
void table_words(const Operand& table, const std::byte* row, Index keys, std::uint32_t* words) {
  std::fill(words, words + words_of(keys), 0U);
  Index k = 0;
  for (; table.stride[3] == 1 && k + 8 <= keys; k += 8) words[k / kWordKeys] |= nonzero_bits(row + k) << (k % kWordKeys);
  for (; k < keys; ++k) words[k / kWordKeys] |= (row[k * table.stride[3]] != std::byte{0} ? 1U : 0U) << (k % kWordKeys);
}

}  // namespace

Sight take_sight(const Problem& p, const Plan& plan, Index keys, Arena& arena) {
  const Room room = room_for(p, plan, keys);
  Sight sight;
  if (by_rules(p)) {
    sight.visible = arena.take<RowIntervals>(room.rows);
    sight.vectors = arena.take<VectorSight>(room.vectors);
  }
  if (p.allowed) sight.table = arena.take<std::uint32_t>(room.rows * room.words);
  return sight;
}

std::size_t sight_bytes(const Problem& p, const Plan& plan, Index keys) {
  const Room room = room_for(p, plan, keys);
  const auto bytes = [](Index count, std::size_t size) {
    return (static_cast<std::size_t>(count) * size + kAlignment - 1) / kAlignment * kAlignment;
  };
  return (by_rules(p) ? bytes(room.rows, sizeof(RowIntervals)) + bytes(room.vectors, sizeof(VectorSight)) : 0) +
         (p.allowed ? bytes(room.rows * room.words, sizeof(std::uint32_t)) : 0);
}

void look(const Problem& p, const Task& task, int lanes, Sight& sight) {
  const bool known = alike(p, sight.task, task);
  sight.task = task;
  if (known) return;
  sight.table_keys = {};
  if (sight.visible == nullptr) return;
  find_visible(p, task, sight.visible);
  find_vectors(sight.visible, task.rows, lanes, sight.vectors);
}

Interval seen_keys(const Sight& sight) {
  const Task& task = sight.task;
  if (sight.visible == nullptr) return task.keys;
  Interval seen{task.keys.hi, task.keys.lo};
  for (Index r = 0; r < task.rows; ++r) {
    const RowIntervals& row = sight.visible[r];
    if (row.count == 0) continue;
    seen.lo = std::min(seen.lo, row.items[0].lo);
    seen.hi = std::max(seen.hi, row.items[static_cast<std::size_t>(row.count - 1)].hi);
  }
  return {std::max(seen.lo, task.keys.lo), std::min(seen.hi, task.keys.hi)};
}

void look_at_keys(const Problem& p, Interval tile, Sight& sight) {
  if (sight.table == nullptr || (sight.table_keys.lo <= tile.lo && tile.hi <= sight.table_keys.hi)) return;
  const Task& task = sight.task;
  sight.table_keys = {tile.lo, std::min(tile.lo + kTableKeys, task.keys.hi)};
  const Index keys = sight.table_keys.hi - sight.table_keys.lo;
  sight.words = words_of(keys);
  const std::byte* known = nullptr;
  for (Index r = 0; r < task.rows; ++r) {
    const RowPlace at = place_of(p, task.batch, task.kv_head, task.first_row + r);
    const std::byte* row = p.allowed.at(at.batch, at.head, at.query, tile.lo);
    std::uint32_t* words = sight.table + r * sight.words;
    if (row == known) {
      std::copy(words - sight.words, words, words);
    } else {
      table_words(p.allowed, row, keys, words);
    }
    known = row;
  }
}

void interval_words(const RowIntervals& row, Interval keys, std::uint32_t* words) {
  for (Index w = 0; w < words_of(keys.hi - keys.lo); ++w) {
    const Index base = keys.lo + w * kWordKeys;
    words[w] = 0;
    for (int i = 0; i < row.count; ++i) {
      const Interval seen = row.items[static_cast<std::size_t>(i)];
      const Index lo = std::max(seen.lo, base) - base;
      const Index hi = std::min({seen.hi, base + kWordKeys, keys.hi}) - base;
      if (lo >= hi) continue;
      words[w] |= (~0U >> (kWordKeys - (hi - lo))) << lo;
    }
  }
}

}  // namespace mha::attention
