// What tasks over parts of the keys leave behind, and how it becomes the result: parts are merged in the order of their keys, so that it
// does not matter who computed them when (Flash-Decoding's split, with a fixed size and a fixed order).
#pragma once

#include "attention/links.h"
#include "attention/tally.h"
#include "core/arena.h"

namespace mha::attention {

struct Partials {
  float* out;               // per row and split [value_dim]: the sum of weights times values, not divided
  float* max;               // per row and split, of the scores seen; -inf where none
  float* sum;               // of exp(score - max)
  RowTally* tallies;        // per row and split; null where no statistics are asked for
  float* link_scores;       // per row and split [links.count]; null where no links are asked for
  std::int32_t* link_keys;  // theirs

  /// Bytes that `take` takes; 0 where keys are not split.
  static std::size_t bytes(const Problem& problem, const Plan& plan);
  static Partials take(const Problem& problem, const Plan& plan, Arena& arena);
};

/// Position of a row's split in Partials.
inline Index partial_at(const Problem& p, const Plan& plan, const Task& task, Index row) {
  return ((task.batch * p.kv_heads + task.kv_head) * p.q_len * p.group + row) * plan.splits + task.split;
}

/// Merges all splits of one kv head's rows and writes out and lse. The rows' maxima and denominators are left with their first split. `row`
/// is scratch of value_dim floats.
struct KvHead {
  Index batch, kv_head;
};
void merge_partials(const Problem& problem, const Plan& plan, const kernels::KernelTable& kernels, const Partials& partials, KvHead of,
                    float* row);

}  // namespace mha::attention
