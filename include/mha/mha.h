// Everything of the library mha::mha: attention, the layer, and what they are made of.
#pragma once

#include "mha/attention.h"
#include "mha/bias.h"
#include "mha/cpu.h"
#include "mha/dtype.h"
#include "mha/error.h"
#include "mha/layer.h"
#include "mha/limits.h"
#include "mha/mask.h"
#include "mha/statistics.h"
#include "mha/tensor.h"
#include "mha/workspace.h"
