// The thread pool of a framework in the same process: libgomp, which torch computes with. Two pools on the same cores fight: a worker of
// one stays awake for a while after its work, where the other's wants to run. Used by interrupt.cpp; computes nothing.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "mha/workspace.h"

namespace mha::python {

/// libgomp's pool, of `threads` threads, once share_openmp() has found it; else nothing.
std::optional<Executor> openmp_executor(int threads);

/// Adds share_openmp to the module.
void bind_openmp(nanobind::module_& module);

}  // namespace mha::python
