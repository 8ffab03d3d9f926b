// Which instruction set the kernels use. Chosen once per process, best first; the environment variable MHA_ISA=name forces one.
#pragma once

#include <span>
#include <string_view>

namespace mha {

/// One way to compute. "reference" is the double-precision reference: slow, exact, the oracle of all others.
struct Isa {
  std::string_view name;   // "avx512", "avx2", "scalar", "reference"
  bool supported = false;  // by this CPU and operating system
};

/// All ISAs compiled in, best first, "reference" last.
std::span<const Isa> isas();
/// The name of the one in use. Throws Error where MHA_ISA names one that is unknown or not supported.
std::string_view current_isa();
/// Switches the whole process to another; for tests and benchmarks, not while a computation runs. Throws Error as current_isa does.
void use_isa(std::string_view name);

}  // namespace mha
