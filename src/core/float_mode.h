// Keeps denormal numbers out of a task: results below the smallest normal f32 become 0, since one denormal operand can slow a multiply a
// hundredfold. Denormal inputs are taken as they are. The mode is the same whatever the thread was in (rounding to nearest, nothing
// trapped), or results would depend on which thread does a task; the thread's own mode is restored at the end of the scope.
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace mha::core {

class FlushDenormals {
 public:
#if defined(__SSE2__)
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(_MM_MASK_MASK | _MM_ROUND_NEAREST | _MM_FLUSH_ZERO_ON); }
  ~FlushDenormals() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;

 public:
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;
};

}  // namespace mha::core
