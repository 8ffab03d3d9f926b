// A view of constant data must not turn into one that may write.
// error: conversion from|could not convert|no viable conversion
#include "mha/tensor.h"

mha::ConstTensorView to_const(mha::TensorView view) { return view; }
#ifdef MUST_NOT_COMPILE
mha::TensorView to_mutable(mha::ConstTensorView view) { return view; }
#endif
