// A C++ type that is no dtype must not become a view.
// error: no_such_dtype|not a class
#include "mha/tensor.h"

mha::ConstTensorView view_of(const float* data) { return mha::ConstTensorView(data, {2, 3}); }
#ifdef MUST_NOT_COMPILE
mha::ConstTensorView view_of(const short* data) { return mha::ConstTensorView(data, {2, 3}); }
#endif
