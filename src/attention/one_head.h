// One batch entry and one head of a call as a problem of its own; queries and keys keep their numbers, which masks go by. For whoever comes
// back to a former call's weights by its lse.
#pragma once

#include "attention/lower.h"

namespace mha::attention {

class OneHead {
 public:
  /// Of arguments that have been validated. `lse` is the former call's, [batch, heads, q_len].
  OneHead(const AttentionSpec& spec, const AttentionInputs& inputs, ConstTensorView lse, Index batch, Index head);
  OneHead(const OneHead&) = delete;
  OneHead& operator=(const OneHead&) = delete;

  const Problem& problem() const { return problem_; }

 private:
  AttentionSpec spec_;
  AttentionInputs inputs_;
  Problem problem_;  // points into the two above
};

}  // namespace mha::attention
