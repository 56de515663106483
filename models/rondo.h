// What programs include.
#pragma once

#include "models/layers/convolution.h"
#include "models/layers/core.h"
#include "models/layers/merge.h"
#include "models/layers/normalization.h"
#include "models/layers/pooling.h"
#include "models/model.h"
#include "models/zoo/zoo.h"
#include "runtime/base/error.h"
#include "runtime/data/array_source.h"
#include "runtime/data/formats/idx.h"
#include "runtime/data/synthetic.h"
#include "runtime/launch/world.h"
#include "runtime/optim/optimizer.h"
#include "runtime/train/callback.h"
