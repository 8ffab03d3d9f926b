// A tensor's copy is asked for by name, never made by accident.
// error: deleted
#include <utility>

#include "mha/tensor.h"

mha::Tensor moved(mha::Tensor& tensor) { return std::move(tensor); }
mha::Tensor cloned(const mha::Tensor& tensor) { return tensor.clone(); }
#ifdef MUST_NOT_COMPILE
mha::Tensor copied(const mha::Tensor& tensor) { return tensor; }
#endif
