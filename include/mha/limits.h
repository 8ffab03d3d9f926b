// What this machine can do at most, measured now: arithmetic and reading. Benchmarks print it beside every figure, since machines change
// speed from minute to minute. Called by `mha bench` and bench/; nothing that computes attention goes by it.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "mha/workspace.h"

namespace mha {

/// Seconds this thread has computed: what another process takes away does not count.
double thread_seconds();

/// Seconds by the clock that suits an executor: thread_seconds() where only the calling thread computes, else wall time.
double executor_seconds(const Executor& executor);

/// f32 fused multiply-adds from registers under an ISA, in GFLOP/s (two per multiply-add), by all threads of the executor together; about
/// 2 ms. For "scalar" a multiplication and an addition, as the baseline CPU has them; 0 for "reference". Throws Error where the ISA is
/// unknown or not supported.
double fma_peak(std::string_view isa, const Executor& executor = serial_executor());

/// Reading `data` from end to end, shared out among the threads of the executor, in GB/s (10^9), with the loads of the ISA in use; again
/// and again until at least 64 MiB are read, so that what fits in a cache is read from there. At least one 4-byte element per thread.
/// Throws ShapeError where there are fewer.
double read_bandwidth(std::span<const std::byte> data, const Executor& executor = serial_executor());

}  // namespace mha
